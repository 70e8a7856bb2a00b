# Everything works as root, who then starts servers and tests as the user
# postgres, and as an ordinary user, who needs sudo only for `setup` and `install`.

.PHONY: all setup build install lint check test soak ha reliability regress accept demo bench clean

all: build

# Installs what is missing on Debian and says what.
setup:
	@scripts/setup.sh

# Builds the extension and installs it into a private copy of PostgreSQL.
build: setup
	@scripts/build.sh

# Installs the extension into the system's PostgreSQL.
install: build
	@scripts/install.sh

# What to run before a commit: format, lints, every major version, pure tests, smoke test.
check: setup
	@scripts/test.sh lint typecheck pure smoke

# What needs no server: format, lints, and the types of the versions that no test builds.
lint: setup
	@scripts/test.sh lint typecheck_rest

# Everything that runs. The last line sums all suites. The model computes while the compiler, which
# has one thread for long, builds what the others need.
test: setup
	@scripts/test.sh model pure clients server isolation docs regress majors harness

# What takes hours: the large forms of the model, every point with every kind of fault, every cell of the disaster matrix
# (SHARDMASTER_INJECTIONS=cutover_,finish_ does a part), random lists of keys, histories, and random walks for an hour. With
# SECONDS=3600 nothing but random walks, for so long; SHARDMASTER_SEED walks the same way again, which each failure prints.
# Failovers are another matter: SHARDMASTER_HA_SECONDS=3600 make ha.
ifdef SECONDS
soak: setup
	@SHARDMASTER_WALK_SECONDS=$(SECONDS) SHARDMASTER_TEST_TIMEOUT=86400 scripts/test.sh harness:walks
else
soak: setup
	@SHARDMASTER_SOAK=1 SHARDMASTER_WALK_SECONDS=3600 \
	    SHARDMASTER_TEST_TIMEOUT=86400 scripts/test.sh model harness:faults harness:disasters harness:walks harness:bad_input harness:histories harness:goes_on harness:placement harness:redirects major:16
endif

# Tries faults of all kinds, and writes down what it has tried: docs/reliability.md. Takes what `make soak` takes.
reliability: setup
	@scripts/reliability.sh

# Failovers by Patroni of source, target and master while splits run, for 3 minutes or SHARDMASTER_HA_SECONDS.
# Installs Debian's patroni and etcd-server where they are missing, without their services.
ha: setup
	@scripts/ha.sh

# The psql suites alone; results stay in target/regress.
regress: setup
	@scripts/test.sh regress isolation

# Takes the last results of the psql suites as expected: look at the difference.
accept:
	@for suite in regress isolation; do cp target/$$suite/results/*.out tests/expected/ 2>/dev/null || true; done
	@git diff --stat -- tests/expected

demo: build
	@scripts/run.sh demo $(DEMO_ARGS)

bench: build
	@scripts/run.sh bench $(BENCH_ARGS)

clean:
	cargo clean
	scripts/prefix.sh --remove
