//! A claim ends once its owner's shard was asked after the end of the lease, and not before.

use shardmaster_tests::fixture::{LIMIT, by_superuser};
use shardmaster_tests::lookups::{add, route, stage, wait_route};
use shardmaster_tests::queries::error;
use shardmaster_tests::server::Stop;
use shardmaster_tests::wait;

#[test]
fn a_lease_ends_once_its_shard_was_asked() {
    let mut cluster = stage(&[]);
    let mut master = add(&cluster);
    let claim = |key: &str, owner: &str, lease: &str| {
        format!("SELECT shard_lookup_claim('{key}@x.org', '{owner}', 'emails', '{lease}')")
    };
    let ended = "SELECT count(*) = 2 FROM shardmaster.lookup_entry WHERE claimed_until < clock_timestamp()";
    let owner = "SELECT shard_lookup('row@x.org', 'emails')";
    // While the shard is disabled, its rows are not followed.
    master.batch_execute("SELECT shard_set_status('shard_b', 'disabled')").unwrap();
    for key in ["row", "none"] {
        master.batch_execute(&claim(key, "c", "200 ms")).unwrap();
    }
    wait::until_true(&mut master, "the leases' end", LIMIT, ended).unwrap();
    // The claim does not end before, because a worker that is running may still find the row.
    by_superuser(&cluster, 1, "INSERT INTO users VALUES ('c', 1, 'row@x.org')");
    for key in ["row", "none"] {
        let (state, message) = error(&mut master, &claim(key, "a", "1 min"));
        assert_eq!(
            (state.as_str(), message.contains("shard \"shard_b\" has not been asked")),
            ("55000", true),
            "{message}"
        );
    }
    // The owner keeps the key, and may claim it again.
    assert_eq!(master.query_one(owner, &[]).unwrap().get::<_, String>(0), "c");
    master.batch_execute(&claim("row", "c", "1 ms")).unwrap();
    master.batch_execute("SELECT shard_set_status('shard_b', 'active')").unwrap();
    wait_route(&mut master, "none@x.org", "42704");
    master.batch_execute(&claim("none", "a", "1 min")).unwrap();
    wait::until("the row to be found", LIMIT, || {
        Ok((error(&mut master, &claim("row", "a", "1 min")).0 == "23505").then_some(()))
    })
    .unwrap();
    assert_eq!(route(&mut master, "row@x.org"), "shard_b");

    // The rows of a shard that is away are not known either.
    for key in ["row2", "none2"] {
        master.batch_execute(&claim(key, "c", "3 s")).unwrap();
    }
    by_superuser(&cluster, 1, "INSERT INTO users VALUES ('c', 2, 'row2@x.org')");
    cluster.servers[1].stop(Stop::Immediate).unwrap();
    let passed = "SELECT count(*) > 0 FROM shardmaster.lookup_entry WHERE key = 'none2@x.org' AND claimed_until < clock_timestamp() - interval '2 s'";
    wait::until_true(&mut master, "the lease's end", LIMIT, passed).unwrap();
    assert_eq!(error(&mut master, &claim("none2", "a", "1 min")).0, "55000");
    // The row may have been seen before.
    let state = error(&mut master, &claim("row2", "a", "1 min")).0;
    assert!(["55000", "23505"].contains(&state.as_str()), "{state}");
    cluster.servers[1].run().unwrap();
    wait_route(&mut master, "none2@x.org", "42704");
    master.batch_execute(&claim("none2", "a", "1 min")).unwrap();
    wait::until("the row to be found", LIMIT, || {
        Ok((error(&mut master, &claim("row2", "a", "1 min")).0 == "23505").then_some(()))
    })
    .unwrap();
    assert_eq!(route(&mut master, "row2@x.org"), "shard_b");
}
