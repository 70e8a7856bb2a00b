//! After a sequence of the target was raised it has numbers left, or the check reports that it has none.

use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::fixture::{LIMIT, by_owner, cluster, plan};

fn count(cluster: &Cluster, server: usize, query: &str) -> i64 {
    cluster.servers[server].superuser(DATABASE).unwrap().query_one(query, &[]).unwrap().get(0)
}

#[test]
#[ignore = "make test-all: small sequences; make test has sequences::advance::what_nobody_can_know_of_a_sequence_is_refused"]
fn a_small_sequence_is_not_used_up_by_being_raised() {
    let cluster = cluster(&[]);
    for server in 0..2 {
        by_owner(
            &cluster,
            server,
            "CREATE SEQUENCE small; CREATE SEQUENCE used; CREATE SEQUENCE cached CACHE 3000;
             ALTER TABLE items ADD a bigint DEFAULT nextval('small'), ADD b bigint DEFAULT nextval('used'), ADD c bigint DEFAULT nextval('cached')",
        );
    }
    by_owner(&cluster, 0, "SELECT setval('small', 10), setval('used', 10)");
    by_owner(
        &cluster,
        1,
        "ALTER SEQUENCE small MAXVALUE 100; ALTER SEQUENCE used MAXVALUE 50; SELECT setval('used', 50);
         ALTER SEQUENCE cached MAXVALUE 7000",
    );
    let split = plan(&cluster);
    let found = split.findings_with_hints().unwrap();
    assert_eq!(found.len(), 1, "{found:#?}");
    let wanted = [
        "target: sequences: public.items: sequence public.used has no number left",
        "ALTER SEQUENCE public.used",
    ];
    assert!(wanted.iter().all(|text| found[0].contains(text)), "{found:?}");
    by_owner(&cluster, 1, "ALTER SEQUENCE used MAXVALUE 5000");
    assert_eq!(split.findings().unwrap(), [""; 0]);
    let notes = format!(
        "SELECT string_agg(detail, '; ' ORDER BY detail) FROM shard_split_check({}) WHERE ok AND hint IS NOT NULL",
        split.id
    );
    let notes: String = cluster.superuser().unwrap().query_one(&notes, &[]).unwrap().get(0);
    assert!(
        notes.contains("public.small has 46 numbers left")
            && notes.contains("public.cached has 2001 numbers left")
            && !notes.contains("public.used"),
        "{notes}"
    );
    split.run(|_| ()).unwrap();
    // No number is drawn twice, and all numbers that are left can be drawn.
    let drawn = "SELECT min(nextval('small')) FROM generate_series(1, 46)";
    assert_eq!(count(&cluster, 1, drawn), 55);
    split.finish(LIMIT).unwrap();
}
