"""Alarms that keep their promise although somebody looks at every pane: bets, evidence, dispersion, latch.

Pure: sealed panes of counts in, alarm events and gauges out. `streamcal.detect.detector` is the way in.
"""
