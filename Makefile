# Everything a developer or CI does with this repository. `make` alone lists the targets.

PYTHON ?= python3
PYTEST_ARGS ?=
RELEASE_ARGS ?=
TEST_PROCESSES ?= 4
SERVER_TEST_PROCESSES ?= 4

# Images of containers often set it; without caches each process compiles what it imports again.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
PY := $(VENV)/bin/python
PIP_INSTALL := $(PY) -m pip --disable-pip-version-check install --quiet
CLIENTS := .cache/clients
DBT := .cache/dbt
DOCS := .cache/docs
ENGINES := .cache/engines
NODE := .cache/node
NODE_PACKAGES := tests/server/lancedb_clients/node/package.json
JAVA := .cache/java-client
JAVA_PACKAGES := tests/clients/java/pom.xml
MAVEN_DEPENDENCIES := org.apache.maven.plugins:maven-dependency-plugin:3.6.1
TRINO := .cache/trino
TRINO_PACKAGES := tests/neighbours/java/trino.xml
HIVE := .cache/hive
HIVE_PACKAGES := tests/neighbours/java/hive.xml
NEIGHBOURS := .cache/neighbours
OPENMETADATA := .cache/openmetadata
CLIENTS_PIP := $(CLIENTS)/bin/python -m pip --disable-pip-version-check install --quiet
DBT_PIP := $(DBT)/bin/python -m pip --disable-pip-version-check install --quiet
DOCS_PIP := $(DOCS)/bin/python -m pip --disable-pip-version-check install --quiet
DEPS_STAMP := $(VENV)/.dependencies-installed
STAMP := $(VENV)/.project-installed
LOCKS := requirements/build.txt requirements/dev.txt
TYPED := core/lance_bridge core/_lance_bridge_names.py hatch_build.py hatch_readme.py release $(filter-out %/__pycache__,$(wildcard adapters/* apps/*)) tests demo bench docker/gateway website examples/sqlite-catalog

COMPILE = $(VENV)/bin/uv pip compile --quiet --no-config --no-python-downloads --universal \
	--python-version 3.10 --generate-hashes --no-header --no-emit-index-url --no-emit-find-links

SERVER_EXTRAS := $(addprefix --extra ,hive glue unity server vend-aws vend-azure vend-google)

SPARKS := $(patsubst requirements/pyspark-%.txt,.cache/pyspark/%/.complete,$(wildcard requirements/pyspark-*.txt))

HELM_VERSION := v4.3.1
HELM := .cache/helm/helm
MINIO_VERSION := v0.0.0-20260212201848-7aac2a2c5b7c
MINIO := .cache/minio/minio
AZURITE := .cache/azurite
AZURITE_PACKAGES := tests/stores/node/package.json
AXE := .cache/axe
AXE_PACKAGES := tests/server/ui/node/package.json

ACTIONLINT_VERSION := v1.7.12
ACTIONLINT := .cache/actionlint/actionlint

JDBC_VERSION := 42.7.8
JDBC_JAR := docker/jars/postgresql.jar

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv test test-all test-clients test-documents test-engines test-releases test-servers test-slow test-spark check check-lint \
	check-format check-types check-layers check-docs demo check-tools bench bench-server bench-spark \
	bench-migrate kerberos metastores sparks helm stores \
	specs docs dist publishable licences workflows lock \
	docker-driver clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "  PYTHON=python3.12 chooses the interpreter, PYTEST_ARGS='-k rename -x' goes to pytest,"
	@echo "  TEST_PROCESSES=2 has make test use two processes in place of four (each starts its own servers)"

venv: $(STAMP) ## set up .venv: locked dependencies, then this project in editable mode

$(DEPS_STAMP): $(LOCKS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
		echo "lance-bridge needs Python 3.10 or later; choose one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments; on Debian: apt install python3-venv" >&2; exit 1; }
	@echo "setting up $(VENV) (a few minutes the first time)"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PIP_INSTALL) --require-hashes -r requirements/build.txt
	@$(PIP_INSTALL) --require-hashes --no-build-isolation -r requirements/dev.txt
	@touch $@

$(STAMP): $(DEPS_STAMP) pyproject.toml
	@$(PIP_INSTALL) --no-build-isolation --no-deps --editable .
	@touch $@

test: check-tools $(STAMP) ## run all tests that need no server, and a smoke test of everything real (5 min)
	@$(PY) -m pytest -n $(TEST_PROCESSES) --dist loadfile --tier quick,smoke $(PYTEST_ARGS)

test-servers: metastores $(AXE)/.complete $(NODE)/.complete $(JAVA)/.complete ## run the other tests on real servers and Spark, as CI does (25 min; fetches 600 MB of jars, npm and Maven packages, once)
	@$(PY) -m pytest --continue-on-collection-errors -n $(SERVER_TEST_PROCESSES) --dist loadfile --tier servers $(PYTEST_ARGS)

test-all: check test test-servers test-documents test-engines test-slow test-spark test-clients ## run everything (hours); make -k test-all continues after failures

test-documents: metastores $(NODE)/.complete $(JAVA)/.complete ## run README and pages for users from top to bottom; in CI too
	@$(PY) -m pytest -n 2 --dist loadfile --tier documents $(PYTEST_ARGS)

test-engines: metastores $(ENGINES)/.complete ## run Ray, Daft, Polars and DuckDB on a gateway and on catalogs, and one in granian (830 MB, once); in CI too
	@PYTHONPATH="$(CURDIR)/$(ENGINES)" $(PY) -m pytest --tier engines tests/clients tests/server $(PYTEST_ARGS)

test-releases: metastores sparks ## run SQL and the data source on Spark 4.1 and 4.2; in CI too
	@$(PY) -m pytest -n 2 --tier releases $(PYTEST_ARGS)

test-spark: metastores sparks ## run SQL on each catalog and on each release of Spark, on a local cluster, remotely and with failures; migrate Delta and Iceberg
	@$(PY) -m pytest -n 2 --tier matrix,releases $(PYTEST_ARGS)

test-slow: metastores helm stores $(AXE)/.complete ## run slow tests: restarts and random sequences on every release, kills, benches, clean installs; more examples of random ones
	@$(PY) -m pytest --tier quick,servers -m hypothesis -n 2 --dist loadfile --hypothesis-profile thorough $(PYTEST_ARGS)
	@$(PY) -m pytest --tier slow -n 2 --dist loadfile --hypothesis-profile thorough \
		-o tmp_path_retention_policy=failed $(PYTEST_ARGS)

helm: $(HELM) ## build Helm, which tests of its chart in deploy/ use (needs Go; 10 min, once)

$(HELM):
	@command -v go >/dev/null || echo "no Go to build Helm with: tests of the chart will be skipped" >&2
	@! command -v go >/dev/null || { echo "building Helm $(HELM_VERSION)" && \
		CGO_ENABLED=0 GOBIN="$(CURDIR)/$(@D)" go install -trimpath helm.sh/helm/v4/cmd/helm@$(HELM_VERSION); }

stores: $(MINIO) $(AZURITE)/.complete ## build MinIO and fetch Azurite, which check credentials (needs Go and npm; 15 min, once)

$(MINIO):
	@command -v go >/dev/null || echo "no Go to build MinIO with: tests on it will be skipped" >&2
	@! command -v go >/dev/null || { echo "building MinIO $(MINIO_VERSION)" && \
		CGO_ENABLED=0 GOBIN="$(CURDIR)/$(@D)" go install -trimpath github.com/minio/minio@$(MINIO_VERSION); }

$(AZURITE)/.complete: $(AZURITE_PACKAGES)
	@command -v npm >/dev/null || echo "no npm to fetch Azurite with: tests on it will be skipped" >&2
	@! command -v npm >/dev/null || { echo "setting up $(@D)" && mkdir -p $(@D) && cp $< $(@D)/ && \
		npm install --prefix $(@D) --no-audit --no-fund --no-package-lock --silent && touch $@; }

$(AXE)/.complete: $(AXE_PACKAGES)
	@command -v npm >/dev/null || echo "no npm to fetch axe with: tests of accessibility will be skipped" >&2
	@! command -v npm >/dev/null || { echo "setting up $(@D)" && mkdir -p $(@D) && cp $< $(@D)/ && \
		npm install --prefix $(@D) --no-audit --no-fund --no-package-lock --silent && touch $@; }

metastores: $(STAMP) ## fetch the jars of all metastores (about 600 MB, once)
	@$(PY) -m lance_bridge_metastore --fetch-only

sparks: $(SPARKS) ## fetch the other releases of PySpark for the tests (about 900 MB, once)

.cache/pyspark/%/.complete: requirements/pyspark-%.txt | $(STAMP)
	@echo "fetching PySpark $*"
	@rm -rf $(@D) $(@D).part
	@$(PIP_INSTALL) --no-deps --no-build-isolation --no-compile --require-hashes \
		--target $(@D).part -r $<
	@mv $(@D).part $(@D)
	@touch $@

kerberos: $(STAMP) ## install packages for the Kerberos tests (Debian: krb5-kdc krb5-admin-server krb5-user libkrb5-dev)
	@$(PIP_INSTALL) --require-hashes --no-build-isolation -r requirements/kerberos.txt

test-clients: metastores stores $(CLIENTS)/.complete $(DBT)/.complete $(NEIGHBOURS)/.complete $(OPENMETADATA)/.complete $(TRINO)/.complete $(HIVE)/.complete .cache/pyspark/4.1/.complete ## run Ray, Daft, geneva, Polars, DuckDB and torch on tables of all catalogs, dbt on Spark, and other tools beside them (about 12 GB, once)
	@$(CLIENTS)/bin/python -m pytest -n 2 --dist loadfile --tier clients,engines tests/clients tests/neighbours tests/stores $(PYTEST_ARGS)

$(NODE)/.complete: $(NODE_PACKAGES)
	@command -v npm >/dev/null || echo "no npm to fetch LanceDB for Node.js with: tests of it will be skipped" >&2
	@! command -v npm >/dev/null || { echo "setting up $(@D)" && mkdir -p $(@D) && cp $< $(@D)/ && \
		npm install --prefix $(@D) --no-audit --no-fund --no-package-lock --silent && touch $@; }

$(JAVA)/.complete: $(JAVA_PACKAGES)
	@command -v mvn >/dev/null || echo "no mvn to fetch the Java client with: tests of it will be skipped" >&2
	@! command -v mvn >/dev/null || { echo "setting up $(@D)" && mkdir -p $(@D) && \
		mvn --quiet --batch-mode --file $< $(MAVEN_DEPENDENCIES):copy-dependencies "-DoutputDirectory=$(CURDIR)/$(@D)" && touch $@; }

$(ENGINES)/.complete: requirements/engines.txt | $(STAMP)
	@echo "setting up $(@D)"
	@rm -rf $(@D) $(@D).part
	@$(PIP_INSTALL) --no-deps --no-build-isolation --no-compile --require-hashes --target $(@D).part -r $<
	@mv $(@D).part $(@D)
	@touch $@

$(CLIENTS)/.complete: requirements/build.txt requirements/clients.txt pyproject.toml | $(STAMP)
	@echo "setting up $(CLIENTS)"
	@$(PYTHON) -m venv --clear $(CLIENTS)
	@$(CLIENTS_PIP) --require-hashes -r requirements/build.txt
	@$(CLIENTS_PIP) --require-hashes --no-build-isolation --no-deps -r requirements/clients.txt
	@$(CLIENTS_PIP) --no-build-isolation --no-deps --editable .
	@touch $@

$(DBT)/.complete: requirements/build.txt requirements/dbt.txt pyproject.toml | $(STAMP)
	@echo "setting up $(DBT)"
	@$(PYTHON) -m venv --clear $(DBT)
	@$(DBT_PIP) --require-hashes -r requirements/build.txt
	@$(DBT_PIP) --require-hashes --no-build-isolation --no-deps -r requirements/dbt.txt
	@$(DBT_PIP) --no-build-isolation --no-deps --editable .
	@touch $@

$(TRINO)/.complete: $(TRINO_PACKAGES)
	@command -v mvn >/dev/null || echo "no mvn to fetch Trino with: tests of it will fail" >&2
	@! command -v mvn >/dev/null || { echo "setting up $(@D)" && rm -rf $(@D) && mkdir -p $(@D) && \
		mvn --quiet --batch-mode --file $< $(MAVEN_DEPENDENCIES):unpack-dependencies \
		"-DoutputDirectory=$(CURDIR)/$(@D)" "-DmarkersDirectory=$(CURDIR)/$(@D)/markers" && touch $@; }

$(HIVE)/.complete: $(HIVE_PACKAGES)
	@command -v mvn >/dev/null || echo "no mvn to fetch jars of Hive with: tests of its command line will fail" >&2
	@! command -v mvn >/dev/null || { echo "setting up $(@D)" && mkdir -p $(@D) && \
		mvn --quiet --batch-mode --file $< $(MAVEN_DEPENDENCIES):copy-dependencies "-DoutputDirectory=$(CURDIR)/$(@D)" && touch $@; }

$(NEIGHBOURS)/.complete $(OPENMETADATA)/.complete: .cache/%/.complete: requirements/%.txt
	@echo "setting up $(@D)"
	@$(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes --no-deps -r $<
	@touch $@

check: check-lint check-format check-types check-layers check-docs ## lint, format, types, layers, documents (make -k check: all of them)

check-lint: $(STAMP)
	@echo "ruff check"; $(PY) -m ruff check --quiet .

check-format: $(STAMP)
	@echo "ruff format"; $(PY) -m ruff format --quiet --check . || { \
		echo "not formatted:"; $(PY) -m ruff format --check . ; exit 1; }

check-types: $(STAMP)
	@echo "mypy --strict"; $(PY) -m mypy --strict --no-error-summary $(TYPED)

check-layers: $(STAMP)
	@echo "import-linter"; $(PY) -m release.layers > $(VENV)/layers.txt || { \
		cat $(VENV)/layers.txt; exit 1; }

check-docs: $(STAMP)
	@echo "documents and packaging"; $(PY) -m pytest --quiet --tier checks tests/docs

specs: $(STAMP) ## write the generated parts of specs/: contents, tables of properties
	@PYTHONPATH=tests $(PY) -m docs.specs

docs: $(DOCS)/.complete ## build the documentation site into build/site/html, and check its links (Python 3.11 or later)
	@$(DOCS)/bin/python -m website

$(DOCS)/.complete: requirements/build.txt requirements/docs.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Zensical, which renders the site, needs Python 3.11 or later; choose one: make PYTHON=python3.12 docs" >&2; exit 1; }
	@echo "setting up $(@D)"
	@$(PYTHON) -m venv --clear $(@D)
	@$(DOCS_PIP) --require-hashes -r requirements/build.txt
	@$(DOCS_PIP) --require-hashes --no-build-isolation -r requirements/docs.txt
	@$(DOCS_PIP) --no-build-isolation --no-deps --editable .
	@touch $@

demo: check-tools $(STAMP) ## show the main use on a real metastore, a gateway for other clients, and all three catalogs
	@$(PY) demo/run.py

# What neither pip nor this project can install, checked before anything is.
check-tools:
	@command -v bash >/dev/null || { echo "Spark's launcher needs bash: install it" >&2; exit 1; }
	@test -z "$$JAVA_HOME" || test -x "$$JAVA_HOME/bin/java" || { \
		echo "JAVA_HOME is $$JAVA_HOME, which has no bin/java: unset it, or set it to a Java 17 or later" >&2; exit 1; }

bench: $(STAMP) ## measure against the raw clients of the catalogs and against pylance: times, calls, memory, start-up
	@$(PY) -m bench hive && echo
	@$(PY) -m bench glue && echo
	@$(PY) -m bench unity && echo
	@$(PY) -m bench operations && echo
	@$(PY) -m bench memory && echo
	@$(PY) -m bench start

bench-spark: $(STAMP) ## measure tables in Spark against Spark's own Parquet, with 22 queries (20 GB of disk, hours)
	@$(PY) -m bench spark && echo
	@$(PY) -m bench pictures --pictures 2000

bench-server: $(STAMP) ## measure the gateway against pylance's RestAdapter and direct calls, and the catalog page with 100,000 tables
	@$(PY) -m bench server

bench-migrate: $(STAMP) ## measure migrations against raw calls of a metastore, and against Spark's own copy of Parquet
	@$(PY) -m bench migrate

dist: $(STAMP) ## build the wheel and the source archive into dist/, and check them (needs a JDK)
	@rm -rf dist
	@$(PY) -m build --no-isolation --outdir dist .
	@$(PY) -m twine check --strict dist/*
	@$(PY) -m check_wheel_contents dist/*.whl
	@$(PY) -m release.distributions dist $(RELEASE_ARGS)

publishable: ## the same, and fail if anything must be set before publishing: version, address, changelog
	@$(MAKE) --no-print-directory dist RELEASE_ARGS=--strict

licences: $(STAMP) ## list the licences of what pip installs with the extras in THIRD_PARTY_LICENSES.md
	@$(PY) -m release.licences

workflows: $(ACTIONLINT) ## lint the workflows of .github/ (needs Go, once)
	@! test -x $(ACTIONLINT) || $(ACTIONLINT)

$(ACTIONLINT):
	@command -v go >/dev/null || echo "no Go to build actionlint with: workflows are checked by their schema alone" >&2
	@! command -v go >/dev/null || { echo "building actionlint $(ACTIONLINT_VERSION)" && \
		GOBIN="$(CURDIR)/$(@D)" go install -trimpath github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT_VERSION); }

lock: $(STAMP) ## resolve the locked dependencies again (needs the package index)
	@$(COMPILE) --upgrade --group build --output-file requirements/build.txt
	@$(COMPILE) --upgrade pyproject.toml --extra all --group dev \
		--constraint requirements/build.txt --output-file requirements/dev.txt
	@$(COMPILE) --upgrade --no-strip-extras pyproject.toml --extra all --group clients \
		--constraint requirements/build.txt --output-file requirements/clients.txt
	@$(COMPILE) --upgrade --no-deps --group engines --constraint requirements/dev.txt --output-file requirements/engines.txt
	@$(COMPILE) --upgrade pyproject.toml $(SERVER_EXTRAS) \
		--constraint requirements/build.txt --constraint requirements/dev.txt --output-file requirements/server.txt
	@$(COMPILE) --upgrade --group kerberos --output-file requirements/kerberos.txt
	@$(COMPILE) --upgrade --python-version 3.11 --group neighbours --output-file requirements/neighbours.txt
	@# This parser of dbt's is fetched from elsewhere when it is built, and no source here needs it.
	@$(COMPILE) --upgrade --python-version 3.11 --group openmetadata --no-emit-package dbt-core-experimental-parser \
		--output-file requirements/openmetadata.txt
	@$(COMPILE) --upgrade pyproject.toml --extra cli --extra hive --extra spark --group dbt --no-emit-package dbt-core-experimental-parser \
		--output-file requirements/dbt.txt
	@$(COMPILE) --upgrade pyproject.toml --extra server --group docs \
		--constraint requirements/build.txt --constraint requirements/dev.txt --output-file requirements/docs.txt
	@echo "$(LOCKS) $(addprefix requirements/,clients.txt dbt.txt engines.txt kerberos.txt neighbours.txt openmetadata.txt server.txt docs.txt) written"

docker-driver: $(JDBC_JAR) ## fetch the PostgreSQL driver that docker/hive.yaml mounts

$(JDBC_JAR): | $(STAMP)
	@mkdir -p $(@D)
	@java -cp "$$($(PY) -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent)')/jars/*" \
		org.apache.ivy.Main -warn -cache .cache/ivy -dependency org.postgresql postgresql $(JDBC_VERSION) \
		-confs default -types jar bundle -notransitive -retrieve "$(@D)/[artifact].[ext]"
	@test -s $@ && echo "$@ is there"

clean: ## remove the output of the other targets, except downloaded jars in .cache
	@rm -rf $(VENV) dist build metastore_db derby.log spark-warehouse docker/jars
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
	@find core adapters apps tests demo bench examples release website -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
