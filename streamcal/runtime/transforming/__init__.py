"""`streamcal transform`: one topic of predictions served to another, each record once."""
