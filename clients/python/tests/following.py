"""What programs do that follow a tenant while it moves. `count` adds one to the tenant's row in the
table `counter`, wherever it is, and returns what it holds then."""

import time


def follow(router, count, tenant, target, other):
    """Counts until it has done so 50 times on the shard to which the tenant moves, and prints the
    count. Then waits to be told that another tenant is on that shard, too."""
    counted = there = 0
    while there < 50:
        counted += 1
        # Not one is lost, and none is done twice.
        found = count(tenant)
        assert found == counted, f"{found} instead of {counted}"
        there += router.route(tenant).shard_key == target
    assert router.route(other).shard_key != target
    print(counted, flush=True)
    # Well below the time after which a router asks in any case.
    deadline = time.monotonic() + 10
    while router.route(other).shard_key != target:
        assert time.monotonic() < deadline, "nobody has told"
        time.sleep(0.01)
    print("told")
