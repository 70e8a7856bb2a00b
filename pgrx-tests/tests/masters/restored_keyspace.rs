//! A master that is restored to a time before keyspaces were dropped and created differently with the same
//! names. What shards know of the later ones is not applied to the earlier ones.

use postgres::Client;
use shardmaster_tests::backups::Disk;
use shardmaster_tests::cluster::{Cluster, DATABASE, OWNER};
use shardmaster_tests::fixture::{LIMIT, finished, state_of};
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;

const TABLES: &str = "CREATE TABLE numbers (k bigint PRIMARY KEY); CREATE TABLE names (name text PRIMARY KEY);
    CREATE TABLE spans (k bigint PRIMARY KEY); CREATE TABLE texts (word text PRIMARY KEY); CREATE TABLE evs (k bigint PRIMARY KEY);
    CREATE TABLE first (n bigint PRIMARY KEY); CREATE TABLE later (no bigint PRIMARY KEY);
    CREATE TABLE orders (buyer bigint PRIMARY KEY); CREATE TABLE tickets (guest bigint PRIMARY KEY)";

fn run(cluster: &Cluster, statements: &str) {
    cluster.superuser().unwrap().batch_execute(statements).unwrap();
}

fn text(master: &mut Client, query: &str) -> String {
    master.query_one(query, &[]).unwrap().get::<_, Option<String>>(0).unwrap_or_default()
}

fn adopt(master: &mut Client, arguments: &str) -> String {
    let query = format!(
        "SELECT string_agg(concat_ws(' ', keyspace, key, moved_to, action), E'\n') FROM shard_adopt({arguments})"
    );
    text(master, &query)
}

#[test]
fn a_keyspace_that_was_made_otherwise_is_not_taken_for_the_one_before() {
    let mut cluster = Cluster::servers(2, &["fsync = off", "shardmaster.watch_interval = 0"]).unwrap();
    for (shard, server) in cluster.shards.iter().zip(0..) {
        cluster.owner_of(shard).unwrap().batch_execute(&format!("SET ROLE {OWNER}; {TABLES}")).unwrap();
        let rows = "INSERT INTO evs SELECT generate_series(1, 60); INSERT INTO numbers VALUES (7); INSERT INTO spans VALUES (11); INSERT INTO first VALUES (10); INSERT INTO later VALUES (10);
            INSERT INTO orders VALUES (10); INSERT INTO tickets VALUES (10)";
        if server == 0 {
            cluster.servers[0].superuser(DATABASE).unwrap().batch_execute(rows).unwrap();
        }
    }
    run(
        &cluster,
        "SELECT shard_keyspace_add('h', 'hash', buckets => 6, key_type => 'bigint', shards => '{shard_a}'), shard_table_add('evs', 'k', 'h');
         SELECT shard_keyspace_add('d', 'directory', key_type => 'text'), shard_table_add('names', 'name', 'd'), shard_assign('7', 'shard_a', 'd');
         SELECT shard_keyspace_add('r', 'range', key_type => 'text'), shard_table_add('texts', 'word', 'r'), shard_assign_range(NULL, NULL, 'shard_a', 'r');
         SELECT shard_keyspace_add('s', 'directory', key_type => 'bigint'), shard_table_add('first', 'n', 's'), shard_assign('10', 'shard_a', 's')",
    );
    let disk = Disk::of(&cluster).unwrap();
    run(
        &cluster,
        "SELECT shard_table_drop('evs', 'h'), shard_table_drop('names', 'd'), shard_unassign('7', 'd'), shard_table_drop('texts', 'r');
         SELECT shard_keyspace_drop('h'), shard_keyspace_drop('d'), shard_keyspace_drop('r');
         SELECT shard_keyspace_add('h', 'hash', buckets => 12, key_type => 'bigint', shards => '{shard_a}'), shard_table_add('evs', 'k', 'h');
         SELECT shard_keyspace_add('d', 'directory', key_type => 'bigint'), shard_table_add('numbers', 'k', 'd'), shard_assign('7', 'shard_a', 'd');
         SELECT shard_keyspace_add('r', 'range', key_type => 'bigint'), shard_table_add('spans', 'k', 'r'), shard_assign_range(NULL, NULL, 'shard_a', 'r');
         SELECT shard_table_drop('first', 's'), shard_unassign('10', 's'), shard_keyspace_drop('s');
         SELECT shard_keyspace_add('s', 'directory', key_type => 'bigint'), shard_table_add('later', 'no', 's'), shard_assign('10', 'shard_a', 's');
         SELECT shard_keyspace_add('t', 'directory', key_type => 'bigint'), shard_table_add('orders', 'buyer', 't'), shard_assign('10', 'shard_a', 't')",
    );
    let mut splits = Vec::new();
    for plan in [
        "SELECT shard_split_plan('shard_a', 'shard_b', '{2}', keyspace => 'h')",
        "SELECT shard_split_plan('shard_a', 'shard_b', '{7}', keyspace => 'd')",
        "SELECT shard_split_plan_range('shard_a', 'shard_b', '10', '20', keyspace => 'r')",
        "SELECT shard_split_plan('shard_a', 'shard_b', '{10}', keyspace => 's')",
        "SELECT shard_split_plan('shard_a', 'shard_b', '{10}', keyspace => 't')",
    ] {
        let split = Split::plan_by(&cluster, plan).unwrap();
        finished(&split);
        splits.push(split.id);
    }
    disk.restore(&mut cluster).unwrap();
    let mut master = cluster.superuser().unwrap();
    let heard = "SELECT count(DISTINCT keyspace) = 5 FROM shardmaster.lost_decision";
    wait::until_true(&mut master, "it to hear of them", LIMIT, heard).unwrap();
    // A keyspace that the backup does not know is created by its name, for other tables.
    run(
        &cluster,
        "SELECT shard_keyspace_add('t', 'directory', key_type => 'bigint'), shard_table_add('tickets', 'guest', 't')",
    );
    for arguments in ["dry_run => true", ""] {
        let said = adopt(&mut master, arguments);
        for why in [
            "not adopted: keyspace \"h\" has 6 buckets of bigint here, and had 12 buckets of bigint then",
            "not adopted: keyspace \"d\" has keys of text here, and had keys of bigint then",
            "not adopted: keyspace \"s\" was dropped and created again since, and its keys are of the later one",
            "not adopted: keyspace \"t\" was created again, and has no table orders, whose rows moved then",
            "not adopted: keyspace \"r\" has ranges of text here, and had ranges of bigint then",
        ] {
            assert!(said.contains(why), "{said}");
        }
        assert!(!said.contains("is routed there"), "{said}");
    }
    for (keyspace, key) in [("h", "17"), ("d", "7"), ("r", "11"), ("s", "10"), ("t", "10")] {
        let of = format!("SELECT shard_of('{key}', keyspace => '{keyspace}')");
        assert_eq!(state_of(&master.simple_query(&of).unwrap_err()), "55000", "{keyspace}");
    }
    // Created as it was, it adopts what its shards know.
    run(
        &cluster,
        "SELECT shard_table_drop('evs', 'h'), shard_keyspace_drop('h');
         SELECT shard_keyspace_add('h', 'hash', buckets => 12, key_type => 'bigint', shards => '{shard_a}'), shard_table_add('evs', 'k', 'h')",
    );
    assert!(adopt(&mut master, "").contains("h 2 shard_b is routed there now"));
    run(&cluster, "SELECT shard_table_add('orders', 'buyer', 't')");
    assert!(adopt(&mut master, "").contains("t 10 shard_b is routed there now"));
    // A rollback of routing does not reverse what a split has moved.
    let back = master.simple_query("SELECT shard_routing_rollback(1, 'h')").unwrap_err();
    assert_eq!(state_of(&back), "55000");
    assert!(back.as_db_error().unwrap().message().contains("have been moved by a split"), "{back}");
    for (server, shard) in [(0, "shard_a"), (1, "shard_b")] {
        let keys: Vec<i64> = cluster.servers[server]
            .superuser(DATABASE)
            .unwrap()
            .query("SELECT k FROM evs", &[])
            .unwrap()
            .iter()
            .map(|row| row.get(0))
            .collect();
        assert!(!keys.is_empty());
        for key in keys {
            assert_eq!(text(&mut master, &format!("SELECT shard_of('{key}', keyspace => 'h')")), shard);
        }
    }
    // Alternatively the operator says that the routes are right.
    let said = adopt(&mut master, &format!("keep_routes => '{{{},{},{}}}'", splits[1], splits[2], splits[3]));
    assert!(said.matches("its keys stay").count() == 3, "{said}");
    assert_eq!(text(&mut master, "SELECT shard_of('10', keyspace => 's')"), "shard_a");
    assert_eq!(text(&mut master, "SELECT shard_of('7', keyspace => 'd')"), "shard_a");
    assert_eq!(text(&mut master, "SELECT shard_of('11', keyspace => 'r')"), "shard_a");
    assert_eq!(adopt(&mut master, ""), "");
    // The adopted decisions belong to the keyspace as it is now.
    let drop = "SELECT shard_table_drop('evs', 'h'), shard_keyspace_drop('h')";
    assert_eq!(state_of(&master.simple_query(drop).unwrap_err()), "55006");
}
