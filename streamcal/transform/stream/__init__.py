"""Records of one topic rewritten for another: raw scores in, served scores out, all else as it was.

What `streamcal transform` does to a single record; topics and transactions are in `streamcal.runtime.transforming`.
Importing `streamcal.transform` loads nothing of this room.
"""
