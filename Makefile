# What people type; the work is in .ci/ and virtual_pod/.
.DEFAULT_GOAL := help
.PHONY: help setup check test build demo demo-ssh demo-down bench bench-fabric bench-report bench-acceptance bench-local bench-demo mutants faults soak format readmes clean
NODE ?= login-01
POD_NAME ?= demo

help: ## Show these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Make .venv and the collections the tools need
	@.ci/setup

check: ## The everyday subset: lint, quick unit tests, house rules
	@.ci/run check

test: ## Everything that CI runs: check, sanity, build, molecule, demo
	@.ci/run

build: setup ## Build the collection's artefact here
	@.venv/bin/ansible-galaxy collection build --force

demo: setup ## Boot a virtual pod and make it a Slurm cluster; IDENTITY=1 has a directory; FAULT=rail_swap,sdc breaks it; FAULT=xid79 REPAIR=1 lets repair_nodes bring the node back
	@PATH="$(CURDIR)/.venv/bin:$$PATH" virtual_pod/demo

demo-ssh: ## Log in on a node of the demo: make demo-ssh NODE=dgx-01
	@virtual_pod/pod ssh --name $(POD_NAME) $(NODE)

demo-down: ## Remove the demo's nodes and network
	@virtual_pod/pod down --name $(POD_NAME)

bench: setup ## Controller CPU seconds per host of a converged re-run
	@PATH="$(CURDIR)/.venv/bin:$$PATH" .venv/bin/python tests/bench/converged.py

bench-fabric: setup ## What it costs to prove a fabric of 1,024 nodes (needs ibsim, opensm, infiniband-diags)
	@.venv/bin/python tests/bench/fabric.py

bench-report: setup ## What verdicts and report of 1,024 nodes cost
	@.venv/bin/python tests/bench/report.py

bench-acceptance: setup ## What verdicts, gate and report of 1,024 nodes cost
	@.venv/bin/python tests/bench/acceptance.py

bench-local: setup ## What nodes that apply their own roles cost the control machine (POD)
	@PATH="$(CURDIR)/.venv/bin:$$PATH" .venv/bin/python tests/bench/local_apply.py

bench-demo: setup ## What make demo takes from a fresh clone, and the second time (removes the demo's nodes)
	@.venv/bin/python tests/bench/demo.py

mutants: setup ## Do tests notice small changes of what judges? MUTANTS="gate --count 50"
	@.venv/bin/python tests/mutants/run.py $(MUTANTS)

faults: setup ## Break every part of a cluster in turn (docs/fault_matrix.md)
	@.venv/bin/python tests/faults/matrix.py

soak: ## The long suites: every ansible-core, tests/soak/
	@.ci/run soak

format: setup ## Format the Python files
	@.venv/bin/ruff check --fix --quiet; .venv/bin/ruff format --quiet

readmes: setup ## Write the roles' variable tables, and those of alerts and thresholds
	@.venv/bin/python .ci/role_readmes.py
	@.venv/bin/python .ci/alert_table.py
	@.venv/bin/python .ci/threshold_table.py

clean: ## Remove what the tools made (not the pods: make demo-down)
	@rm -rf .venv .cache .ansible
	@find . -name __pycache__ -prune -exec rm -rf {} +
