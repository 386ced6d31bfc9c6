"""What `streamcal state` does with the state of a group: look, write out, begin anew, accept what is gone."""
