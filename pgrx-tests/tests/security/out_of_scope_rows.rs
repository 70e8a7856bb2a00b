//! A compromised source, or a link that changes bytes, delivers rows of keys that do not move. The target
//! accepts none of them.

use postgres::Client;
use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE, MOVER, OWNER};
use shardmaster_tests::env::at_most;
use shardmaster_tests::fixture::{LIMIT, cluster, source};
use shardmaster_tests::relay::Relay;
use shardmaster_tests::split::Split;

/// A table with moving and staying keys, and the bytes that are replaced on the way.
struct Case {
    keyspace: &'static str,
    table: &'static str,
    /// Statements of a superuser on the master, once the keyspace and shards exist.
    route: &'static str,
    plan: &'static str,
    truth: &'static [u8],
    told: &'static [u8],
    /// The key in the error's message.
    key: &'static str,
}

const CASES: &[Case] = &[
    Case {
        keyspace: "few",
        table: "CREATE TABLE few (tenant text, id int, val text, PRIMARY KEY (tenant, id))",
        route: "SELECT shard_keyspace_add('few', 'directory'), shard_assign_many('{moves,stays}', 'shard_a', 'few')",
        plan: "SELECT shard_split_plan('shard_a', 'shard_b', '{moves}', keyspace => 'few')",
        truth: b"moves",
        told: b"stays",
        key: "key \"stays\"",
    },
    Case {
        keyspace: "many",
        table: "CREATE TABLE many (tenant text, id int, val text, PRIMARY KEY (tenant, id))",
        route: "SELECT shard_keyspace_add('many', 'directory'),
                       shard_assign_many('{moves,stays,\"o''clock \\\" one\"}' || array_agg('k' || n), 'shard_a', 'many') FROM generate_series(1, 50) n",
        plan: "SELECT shard_split_plan('shard_a', 'shard_b', '{moves,\"o''clock \\\" one\"}' || array_agg('k' || n), keyspace => 'many') FROM generate_series(1, 50) n",
        truth: b"moves",
        told: b"stays",
        key: "key \"stays\"",
    },
    // Numbers are copied in binary form.
    Case {
        keyspace: "numbers",
        table: "CREATE TABLE numbers (tenant bigint, id int, val text, PRIMARY KEY (tenant, id))",
        route: "SELECT shard_keyspace_add('numbers', 'directory', key_type => 'bigint'),
                       shard_assign_many(array_agg(n::text), 'shard_a', 'numbers') FROM generate_series(7000000001, 7000000020) n",
        plan: "SELECT shard_split_plan('shard_a', 'shard_b', array_agg(n::text), keyspace => 'numbers') FROM generate_series(7000000001, 7000000012) n",
        truth: &7_000_000_001_i64.to_be_bytes(),
        told: &7_000_000_020_i64.to_be_bytes(),
        key: "key \"7000000020\"",
    },
    Case {
        keyspace: "hashed",
        table: "CREATE TABLE hashed (tenant text, id int, val text, PRIMARY KEY (tenant, id))",
        route: "SELECT shard_keyspace_add('hashed', 'hash', buckets => 64, shards => '{shard_a}')",
        plan: "SELECT shard_split_plan('shard_a', 'shard_b', ARRAY[shard_for('moves'::text, 64)::text], keyspace => 'hashed')",
        truth: b"moves",
        told: b"stays",
        key: "key \"stays\"",
    },
    Case {
        keyspace: "ranged",
        table: "CREATE TABLE ranged (tenant text, id int, val text, PRIMARY KEY (tenant, id))",
        route: "SELECT shard_keyspace_add('ranged', 'range'), shard_assign_range(NULL, NULL, 'shard_a', 'ranged')",
        plan: "SELECT shard_split_plan_range('shard_a', 'shard_b', 'm', 'n', keyspace => 'ranged')",
        truth: b"moves",
        told: b"stays",
        key: "key \"stays\"",
    },
    Case {
        keyspace: "parted",
        table: "CREATE TABLE parted (tenant text, id int, val text, PRIMARY KEY (tenant, id)) PARTITION BY LIST (tenant);
                CREATE TABLE parted_m PARTITION OF parted FOR VALUES IN ('moves');
                CREATE TABLE parted_other PARTITION OF parted DEFAULT",
        route: "SELECT shard_keyspace_add('parted', 'directory'), shard_assign_many('{moves,stays}', 'shard_a', 'parted')",
        plan: "SELECT shard_split_plan('shard_a', 'shard_b', '{moves}', keyspace => 'parted')",
        truth: b"moves",
        told: b"stays",
        key: "key \"stays\"",
    },
    // The target computes the key itself, from a column that was changed.
    Case {
        keyspace: "made",
        table: "CREATE TABLE made (a text, tenant text GENERATED ALWAYS AS (lower(a)) STORED, id int, val text, PRIMARY KEY (a, id))",
        route: "SELECT shard_keyspace_add('made', 'directory'), shard_assign_many('{moves,stays}', 'shard_a', 'made')",
        plan: "SELECT shard_split_plan('shard_a', 'shard_b', '{moves}', keyspace => 'made')",
        truth: b"MOVES",
        told: b"STAYS",
        key: "key \"stays\"",
    },
    Case {
        keyspace: "mapped",
        table: "CREATE TABLE mapped (tenant text, id int, val text, PRIMARY KEY (tenant, id))",
        route: "SELECT shard_keyspace_add('mapped', 'directory'), shard_assign_many('{moves,stays}', 'shard_a', 'mapped')",
        plan: "SELECT p FROM shard_split_plan('shard_a', 'shard_b', '{moves}', keyspace => 'mapped') p",
        truth: b"moves",
        told: b"stays",
        key: "key \"stays\"",
    },
];

impl Case {
    /// Returns the columns and the value of the key that moves.
    fn moving(&self) -> (&'static str, &'static str) {
        match self.keyspace {
            "numbers" => ("tenant", "7000000001"),
            "made" => ("a", "MOVES"),
            _ => ("tenant", "moves"),
        }
    }

    fn insert(&self, client: &mut Client, from: i32, to: i32) {
        let (column, key) = self.moving();
        let name = self.keyspace;
        client
            .batch_execute(&format!(
                "INSERT INTO {name} ({column}, id, val) SELECT '{key}', i, 'v' FROM generate_series({from}, {to}) i"
            ))
            .unwrap();
    }

    fn rows(&self, cluster: &Cluster, server: usize) -> i64 {
        let query = format!("SELECT count(*) FROM {}", self.keyspace);
        cluster.servers[server].superuser(DATABASE).unwrap().query_one(&query, &[]).unwrap().get(0)
    }
}

fn must_fail(split: &Split<'_>, phase: &str, case: &Case) {
    let error = split.wait(phase, LIMIT).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("shard \"shard_a\" returned a row of") && text.contains("HINT"), "{text}");
    assert!(text.contains(case.key) && text.contains(&format!("public.{}", case.keyspace)), "{text}");
    let stored = "SELECT error_code FROM shardmaster.split_plan WHERE id = $1";
    let code: String = split.superuser().unwrap().query_one(stored, &[&split.id]).unwrap().get(0);
    assert_eq!(code, "SM006");
}

/// This applies to the copy and to changes after it, whatever keys move and however they are written. The
/// existing row of a tenant of the target stays unchanged.
#[test]
fn the_target_takes_rows_of_the_moving_keys_alone() {
    let cluster = cluster(&[]);
    let link = Relay::before(&cluster.servers[0]).unwrap();
    let mut master = cluster.superuser().unwrap();
    let set = "UPDATE shardmaster.shard SET conninfo = $1 WHERE shard_key = 'shard_a'";
    master.execute(set, &[&link.conninfo(DATABASE, MOVER)]).unwrap();
    for case in CASES.iter().take(at_most(2)) {
        for server in &cluster.servers {
            server
                .superuser(DATABASE)
                .unwrap()
                .batch_execute(&format!(
                    "SET ROLE {OWNER}; {}; GRANT ALL ON {} TO {CLIENT}",
                    case.table, case.keyspace
                ))
                .unwrap();
        }
        case.insert(&mut source(&cluster), 1, 50);
        master.batch_execute(case.route).unwrap();
        master.execute("SELECT shard_table_add($1, 'tenant', $1)", &[&case.keyspace]).unwrap();
        let split = Split::plan_by(&cluster, case.plan).unwrap();
        if case.keyspace == "mapped" {
            let map = "SELECT shard_split_map($1, 'mapped', 'val', 'upper(val)')";
            master.execute(map, &[&split.id]).unwrap();
        }
        split.call("start_dual_write").unwrap();
        split.wait("dual_write", LIMIT).unwrap();
        link.lie("reader", case.truth, case.told);
        split.call("run_backfill").unwrap();
        must_fail(&split, "cutover_pending", case);
        assert_eq!(case.rows(&cluster, 1), 0, "{}", case.keyspace);
        link.mend();
        split.call("run_backfill").unwrap();
        split.wait("cutover_pending", LIMIT).unwrap();
        assert_eq!(case.rows(&cluster, 1), 50, "{}", case.keyspace);
        // The reader sends changed keys in a form of its own.
        split.wait_settled(LIMIT).unwrap();
        cluster.hold("step_begin").unwrap();
        split.wait_held("step_begin", LIMIT).unwrap();
        link.lie("reader", case.truth, case.told);
        // A few rows are sent as texts, in which the replaced bytes of numbers do not occur.
        let last = if case.keyspace == "numbers" { 700 } else { 60 };
        case.insert(&mut source(&cluster), 51, last);
        cluster.fault("").unwrap();
        must_fail(&split, "completed", case);
        assert_eq!(case.rows(&cluster, 1), 50, "{}", case.keyspace);
        link.mend();
        split.call("replay_tail").unwrap();
        split.wait_settled(LIMIT).unwrap();
        split.call("cutover").unwrap();
        split.wait("completed", LIMIT).unwrap();
        split.finish(LIMIT).unwrap();
        assert_eq!(
            (case.rows(&cluster, 0), case.rows(&cluster, 1)),
            (0, i64::from(last)),
            "{}",
            case.keyspace
        );
    }
}
