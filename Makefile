# Only forwards: everything lives in dev.py.
PYTHON ?= python3

.PHONY: demo test check bench torture lock
demo test check bench torture lock:
	@$(PYTHON) "$(CURDIR)/dev.py" $@ $(ARGS)
