# Everything that is done to this repository by hand or by CI. Needs Python >= 3.11 and make; the rest is set up.
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.made
# Two processes with servers of their own; a file's tests stay together, the long ones first. ARGS="-n 0" runs them in one.
SIDE_BY_SIDE := -n 2 --dist loadfile --no-loadscope-reorder
export UV_PYTHON_DOWNLOADS := never
# As pip does: a company's own certificate authority is known to the machine, not to uv.
export UV_SYSTEM_CERTS := 1

.PHONY: up test check static map peers bench simulate lock FORCE

up: $(STAMP)  ## run everything on this machine until Ctrl-C
	@$(BIN)/daybook up

test: $(STAMP)  ## run the tests; ARGS="-k word" narrows them
	@$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not chaos" $(ARGS)

check: static  ## what CI runs: format, lint, types, import contracts, migrations, and the tests last
	@$(BIN)/python -m pytest $(SIDE_BY_SIDE)

static: $(STAMP)  ## all of `check` but the tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m local.migrations

map: $(STAMP)  ## the table of contents: first docstring lines
	@$(BIN)/python -m local.contents

peers:  ## real carrier peers for the tests marked `peer`, where this machine allows it
	@.ci/peers

bench: $(STAMP)  ## figures against plain counterparts; ARGS="--quick" for a first look
	@$(BIN)/python -m bench $(ARGS)

simulate: $(STAMP)  ## histories on the real books beside the model; ARGS="--histories 10000 --seed 7"
	@$(BIN)/python -m tests.simulate $(ARGS)

lock: $(STAMP)  ## resolve again; no host may end up in the files
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url $(ARGS) \
		pyproject.toml -o requirements.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url $(ARGS) \
		--extra local --extra test --extra lint pyproject.toml -o requirements-dev.txt
	@! grep -n '://' requirements.txt requirements-dev.txt

# The stamp holds the folder it was made in: scripts of a moved or copied virtualenv still run the old checkout's code.
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
$(STAMP): FORCE
endif

$(STAMP): requirements-dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; \
		sys.exit(0 if sys.version_info >= (3, 11) else "Daybook needs Python 3.11 or newer, and $(PYTHON) is " + v + "; name one: make PYTHON=python3.12 ...")'
	@{ test ! -f $(STAMP) || test "$$(cat $(STAMP))" = "$(CURDIR)"; } \
		&& $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| $(PYTHON) -m venv --clear $(VENV) || \
		{ echo "$(PYTHON) cannot make a virtualenv; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@echo "setting up $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv || true
	@{ test -x $(BIN)/uv && $(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements-dev.txt \
		&& $(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable . ; } \
	|| { echo "without uv; pip takes longer"; $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt \
		&& $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable . ; }
	@printf '%s' "$(CURDIR)" > $(STAMP)
