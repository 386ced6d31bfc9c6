"""Maps and documents as values of saved states: by their parameters and by their bytes, as readers know them."""

from __future__ import annotations

from streamcal.maps.document import MapDocument, decode, encode
from streamcal.maps.families import Identity, Map, Platt, Prior, Tracking, from_parameters
from streamcal.maps.families_knots import Cir, Girb, Isotonic
from streamcal.maps.families_logit import Beta, Intercept, Temperature
from streamcal.maps.publishing import PublishMap
from streamcal.state.trees import Tree, foreign, recorded

__all__: list[str] = []


def _write_map(map_: Map) -> Tree:
    return [map_.family, dict(map_.parameters())]


def _read_map(tree: Tree) -> Map:
    family, parameters = tree
    return from_parameters(family, parameters)


for _cls in (Identity, Prior, Intercept, Temperature, Platt, Tracking, Beta, Isotonic, Girb, Cir):
    foreign(_cls, "Map", _write_map, _read_map)
recorded(PublishMap)
foreign(MapDocument, "MapDocument", encode, decode)
