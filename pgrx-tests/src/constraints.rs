//! Tables whose constraints differ between the two sides, and cases of such differences. The check must find
//! each by name before anything moves.

use crate::cluster::{Cluster, DATABASE, OWNER};
use crate::fixture::by_owner;
use crate::matrix::leftovers;
use crate::split::Split;

/// A plain table, one partitioned by ranges with lists below, and one by hash. Each partition has a row.
const TABLES: &str = "
    CREATE TABLE items (tenant bigint, id int, val varchar(20), PRIMARY KEY (tenant, id));
    CREATE TABLE parts (tenant bigint, id int, val text, PRIMARY KEY (tenant, id)) PARTITION BY RANGE (id);
    CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (100);
    CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (100) TO (200) PARTITION BY LIST (tenant);
    CREATE TABLE parts_2a PARTITION OF parts_2 FOR VALUES IN (1, 9);
    CREATE TABLE hashed (tenant bigint, id int, PRIMARY KEY (tenant, id)) PARTITION BY HASH (id);
    CREATE TABLE hashed_0 PARTITION OF hashed FOR VALUES WITH (MODULUS 2, REMAINDER 0);
    CREATE TABLE hashed_1 PARTITION OF hashed FOR VALUES WITH (MODULUS 2, REMAINDER 1)";

const ROWS: &str = "
    INSERT INTO items SELECT 1, i, 'new' FROM generate_series(1, 20) i;
    INSERT INTO parts SELECT 1, i, 'v' FROM generate_series(0, 199) i;
    INSERT INTO hashed SELECT 1, i FROM generate_series(1, 20) i";

/// Makes two servers with the tables. The rows are on the source.
pub fn cluster() -> Cluster {
    let cluster = Cluster::servers(2, &["fsync = off", "shardmaster.tail_interval = 20"]).unwrap();
    by_owner(&cluster, 0, TABLES);
    by_owner(&cluster, 1, TABLES);
    by_owner(&cluster, 0, ROWS);
    let tables = "SELECT shard_table_add(t, 'tenant', key_type => 'bigint') FROM unnest('{items,parts,hashed}'::text[]) t";
    let mut master = cluster.superuser().unwrap();
    master.batch_execute(&format!("{tables}; SELECT shard_assign('1', 'shard_a')")).unwrap();
    cluster
}

/// Returns the check's findings, each with its hint.
pub fn findings(split: &Split<'_>) -> Vec<String> {
    let found = split.findings_with_hints().unwrap();
    for finding in &found {
        assert!(
            finding.split_once(" HINT: ").is_some_and(|(_, hint)| !hint.is_empty()),
            "no hint: {finding}"
        );
    }
    found
}

/// Allows the tables' owner to have functions of his own.
pub fn trust_owner(cluster: &Cluster) {
    let trust = "SELECT shard_trust_owner(shard_key, $1) FROM shard_topology()";
    cluster.superuser().unwrap().execute(trust, &[&OWNER]).unwrap();
}

/// A server with the statements that make the difference, the statements that undo it, and the expected finding.
pub type Case = (&'static [(usize, &'static str)], &'static [(usize, &'static str)], &'static str);

/// Each case must be found while its difference exists. Afterwards nothing is found, and nothing is installed.
pub fn refuse(cases: &[Case]) {
    let cluster = cluster();
    trust_owner(&cluster);
    let split = Split::plan(&cluster, "shard_a", "shard_b", &["1"]).unwrap();
    let mut missed = Vec::new();
    for (make, unmake, finding) in cases {
        make.iter().for_each(|(server, statements)| by_owner(&cluster, *server, statements));
        let found = findings(&split);
        if !found.iter().any(|text| text.starts_with(finding)) {
            missed.push(format!("{make:?}: not {finding}, but {found:?}"));
        }
        unmake.iter().for_each(|(server, statements)| by_owner(&cluster, *server, statements));
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
    assert_eq!(findings(&split), [""; 0]);
    for server in &cluster.servers {
        assert!(leftovers(&mut server.superuser(DATABASE).unwrap()).unwrap().is_empty());
    }
}
