# Only forwards: everything lives in dev.py.
PYTHON ?= python3

.PHONY: demo test check bench lock
demo test check bench lock:
	@$(PYTHON) "$(CURDIR)/dev.py" $@ $(ARGS)
