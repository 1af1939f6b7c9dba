PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
SEED ?= 0
RUN_DIR ?= runs/cartpole-ppo-$(SEED)
export OMP_NUM_THREADS ?= 1
unexport PYTHONDONTWRITEBYTECODE  # tests start many processes, each of which would compile the package anew

.PHONY: train test slow engines lint types mypy pyright format clean

# Modules become bytecode when first imported; to compile all of them takes as long as to install them.
$(VENV)/.installed: constraints.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	@start=$$(date +%s); \
	$(RUN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt torch && \
	$(RUN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]' && \
	echo $$(( $$(date +%s) - start )) > $@ && echo "install: $$(cat $@) s"

train: $(VENV)/.installed
	$(RUN)/purestep train ppo --env cartpole --seed $(SEED) --run $(RUN_DIR) --overwrite

test: $(VENV)/.installed
	$(RUN)/pytest -n 2 --dist loadfile

slow: $(VENV)/.installed  # these wait for processes, so three share two cores
	$(RUN)/pytest -n 3 --dist worksteal -m slow

engines: $(VENV)/.installed
	$(RUN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev,monarch,ray]'
	$(RUN)/pytest -m "slow or not slow" tests/integration/engines

lint: $(VENV)/.installed
	$(RUN)/ruff check . && $(RUN)/ruff format --check .

types: mypy pyright

mypy: $(VENV)/.installed
	$(RUN)/mypy && $(RUN)/mypy tests

pyright: $(VENV)/.installed
	$(RUN)/pyright --threads 2

format: $(VENV)/.installed
	$(RUN)/ruff check --fix . && $(RUN)/ruff format .

clean:
	rm -rf $(VENV) build dist *.egg-info
