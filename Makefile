# Everything works as root, who then starts servers and tests as the user
# postgres, and as an ordinary user, who needs sudo only for `setup` and `install`.
#
# PG_CONFIG=/path/to/pg_config: for that PostgreSQL, 13 to 18; without it Debian's own.
# PG=18: for one that is fetched into target/, and that nothing is installed into; 13, 16 and 17 can be had as well.
export PG PG_CONFIG DESTDIR

.PHONY: all setup setup-tests build install installcheck package check-package dist lint check test test-all soak ha reliability mutations regress accept docs demo bench clean

# What a target needs is made one after the other.
.NOTPARALLEL:

all: build

# Installs what a build lacks on Debian, and says what; setup-tests: and what the tests need besides.
setup:
	@scripts/setup.sh build

setup-tests:
	@scripts/setup.sh tests

# Builds the extension and installs it into a private copy of PostgreSQL. Says what is missing, and
# installs none of it.
build:
	@scripts/setup.sh --check build
	@scripts/build.sh

# Installs the extension into the PostgreSQL of PG_CONFIG, or below DESTDIR. Root may have no Rust: then
# it is what the user has built.
ifndef SUDO_UID
install: build
endif
install:
	@scripts/install.sh

# A Debian package for that PostgreSQL, in target/packages; check-package, as root: tries one in a bare Debian.
package:
	@scripts/setup.sh --check package
	@scripts/build.sh
	@scripts/package.sh

check-package:
	@scripts/setup.sh debian
	@scripts/test.sh package

# The source as PGXN takes it: target/shardmaster-VERSION.zip.
dist:
	@scripts/dist.sh

# The psql suites on throw-away servers of the PostgreSQL of PG_CONFIG, with the extension that is installed there.
installcheck:
	@SHARDMASTER_INSTALLED=yes scripts/test.sh regress isolation

# What to run before a commit: format, lints, types on the oldest and the newest version, pure tests, a smoke test.
check: setup-tests
	@scripts/test.sh lint typecheck_ends pure smoke

# What needs no server: format, lints, and the types of the versions that `make test` does not build.
lint: setup-tests
	@scripts/test.sh lint typecheck_rest

# Everything that a change can break. The last line sums all suites. The model computes while the compiler, which
# has one thread for long, builds what the others need.
# With PG=18: all that has to do with a server, with PostgreSQL 18 as the master's.
ifdef PG
test: setup-tests
	@scripts/test.sh pure server isolation docs regress harness
else
test: setup-tests
	@scripts/test.sh model pure clients server isolation docs regress updates majors harness
endif

# All that there is, before a release: docs/internals/tests.md says what it has beside `make test`. It takes hours and may be ended
# at any time: what has passed is kept for the code as it is, and the next run goes on.
# The package is tried in a bare Debian, for which one must be root.
LONG = SHARDMASTER_KEEP=1 SHARDMASTER_SOAK=1 SHARDMASTER_TEST_JOBS=4 SHARDMASTER_TEST_TIMEOUT=86400 SHARDMASTER_WALK_SECONDS=$(or $(SECONDS),1800)
PACKAGE = $(shell test "$$(id -u)" != 0 || echo package)
test-all: setup-tests
	@test -z "$(PACKAGE)" || scripts/setup.sh debian
	@$(LONG) scripts/test.sh lint typecheck model pure clients server isolation docs regress updates majors harness \
	    on:13:split::types on:16:split::types on:17:split::types on:18:split::types $(PACKAGE)

# The part of it that takes hours: the large forms of the model, every point with every kind of fault, every cell of the
# disaster matrix (SHARDMASTER_INJECTIONS=cutover_,finish_ does a part), random lists of keys, histories, and random walks for
# an hour. With SECONDS=3600 nothing but random walks, each kind for so long; SHARDMASTER_SEED walks the same way again, which
# each failure prints. Failovers are another matter: SHARDMASTER_HA_SECONDS=3600 make ha.
ifdef SECONDS
soak: setup-tests
	@SHARDMASTER_WALK_SECONDS=$(SECONDS) SHARDMASTER_TEST_TIMEOUT=86400 scripts/test.sh harness:faults::walks
else
soak: setup-tests
	@$(LONG) scripts/test.sh model harness:faults::injection_points harness:faults::disasters harness:faults::walks harness:faults::bad_input harness:faults::histories harness:ddl::resume harness:routing::placement harness:routing::redirects major:16
endif

# Tries faults of all kinds, and writes down what it has tried: docs/internals/reliability.md. Takes what `make soak` takes.
reliability: setup-tests
	@scripts/reliability.sh

# Makes deliberate faults in a copy of the checkout, one after the other, and shows which test of `make test` finds each. Takes
# a minute or more for each, beside the first build, and may be ended at any time; NAMES="one_fault another_one" takes these alone.
mutations: setup-tests
	@scripts/mutations.sh $(NAMES)

# Failovers by Patroni of source, target and master while splits run, for 3 minutes or SHARDMASTER_HA_SECONDS.
# Installs Debian's patroni and etcd-server where they are missing, without their services.
ha: setup-tests
	@scripts/ha.sh

# The psql suites alone; results stay in target/regress.
regress: setup-tests
	@scripts/test.sh regress isolation

# Takes the last results of the psql suites as expected, and the page of functions of the suite docs: look at
# the difference.
accept:
	@for suite in regress isolation; do cp target/$$suite/results/*.out tests/expected/ 2>/dev/null || true; done
	@cp target/docs/functions.md docs/reference/ 2>/dev/null || true
	@cp target/docs/pictures/*.svg docs/pictures/ 2>/dev/null || true
	@git diff --stat -- tests/expected docs/reference/functions.md docs/pictures

# The documentation as a site in target/site. Needs no PostgreSQL; builds mdBook into target/tools, and installs what that lacks.
docs:
	@scripts/setup.sh docs
	@scripts/site.sh

demo: setup build
	@scripts/run.sh demo $(DEMO_ARGS)

bench: setup build
	@scripts/run.sh bench $(BENCH_ARGS)

clean:
	@test ! -e target/mutations/tree/scripts/prefix.sh || target/mutations/tree/scripts/prefix.sh --remove
	cargo clean
	scripts/prefix.sh --remove
