//! Foreign tables of all shards: what shards compare is what comes of it, in whatever plan.

use shardmaster_tests::asking::analyst;
use shardmaster_tests::importing::{imported, plan, texts};

/// Beside local tables that are read in parallel, and by whatever names the session goes.
#[test]
fn plans_and_names_of_the_session_do_not_matter() {
    let cluster = imported(&[]);
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "CREATE TABLE big AS SELECT CASE i % 2 WHEN 0 THEN 'moves' ELSE 'stays' END AS tenant, i FROM generate_series(1, 20000) i; ALTER TABLE big SET (parallel_workers = 2); ANALYZE big; GRANT SELECT ON big TO PUBLIC;
             CREATE SCHEMA evil; CREATE FUNCTION evil.no(oid, oid) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT false';
             CREATE OPERATOR evil.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = evil.no); GRANT USAGE ON SCHEMA evil TO PUBLIC",
        )
        .unwrap();
    let mut client = analyst(&cluster);
    client.batch_execute("SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0").unwrap();
    for query in [
        "SELECT count(*) FROM big JOIN shards.items USING (tenant) WHERE id IN (3, 4)",
        "SELECT count(*) FROM big JOIN shards.items USING (tenant) WHERE tenant = 'stays' AND id IN (3, 5)",
    ] {
        let shown = plan(&mut client, query);
        assert!(shown.contains("Gather"), "{shown}");
        assert_eq!(texts(&mut client, query), ["20000"], "{query}");
    }
    client.batch_execute("SET search_path = evil, pg_catalog, public").unwrap();
    assert_eq!(
        texts(&mut client, "SELECT val FROM shards.items WHERE id = 3 AND tenant IN ('stays', 'x')"),
        ["3"]
    );
}
