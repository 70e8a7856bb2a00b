//! The zoo: every type, key and shape of tables either moves, its rows changed before
//! their chunk, after it and at the fence, or is refused by the check.

use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::scene::LIMIT;
use shardmaster_tests::split::Split;
use shardmaster_tests::zoo::{self, Case, compare, keys, refused, shapes, values};
use std::collections::BTreeSet;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(300);

const EXTENSIONS: &str =
    "citext hstore ltree isn cube seg intarray uuid-ossp pg_trgm btree_gist btree_gin lo";

/// Where all servers of the zoo are made.
fn cluster() -> Cluster {
    let config = [
        "fsync = off",
        "shardmaster.tail_interval = 20",
        "shardmaster.cutover_timeout = '120s'",
        "max_locks_per_transaction = 1000",
    ];
    let cluster = Cluster::servers(2, &config).unwrap();
    for shard in &cluster.shards {
        let mut owner = cluster.owner_of(shard).unwrap();
        for extension in EXTENSIONS.split(' ') {
            owner.batch_execute(&format!("CREATE EXTENSION \"{extension}\"")).unwrap();
        }
        owner
            .batch_execute(
                "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
                 CREATE COLLATION ci_as (provider = icu, locale = 'und-u-ks-level1', deterministic = false)",
            )
            .unwrap();
    }
    cluster
}

fn prepare(cluster: &Cluster, keyspace: &str, cases: &[Case]) {
    for case in cases {
        case.create(cluster, &cluster.shards[0], &cluster.shards[1]).unwrap();
    }
    zoo::add_tables(cluster, keyspace, cases).unwrap();
}

fn change(cluster: &Cluster, cases: &[Case], moment: usize) {
    let mut source = cluster.owner_of(&cluster.shards[0]).unwrap();
    for case in cases {
        case.change(&mut source, moment).unwrap();
    }
}

/// What each table holds of a tenant on a server; of the target, with the names of columns
/// that only it has, that too.
fn held(cluster: &Cluster, server: usize, cases: &[Case], tenant: &str) -> Vec<Vec<Vec<u8>>> {
    let mut session = cluster.servers[server].superuser(DATABASE).unwrap();
    let of = |case: &Case| {
        let condition = format!("{} = '{tenant}'", case.shard_by);
        compare::rows(&mut session, case, &condition, "UTF8").unwrap()
    };
    cases.iter().map(of).collect()
}

fn assert_same(cases: &[Case], what: &str, left: &[Vec<Vec<u8>>], right: &[Vec<Vec<u8>>]) {
    let all = cases.iter().zip(left.iter().zip(right));
    let wrong: Vec<String> =
        all.filter_map(|(case, (left, right))| compare::difference(case, what, left, right)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The whole way of a split, with changes at each moment.
fn moves(cluster: &Cluster, keyspace: &str, cases: &[Case]) {
    prepare(cluster, keyspace, cases);
    let mut master = cluster.superuser().unwrap();
    master
        .execute("SELECT shard_assign_many('{moves,stays}', 'shard_a', keyspace => $1)", &[&keyspace])
        .unwrap();
    let plan =
        format!("SELECT shard_split_plan('shard_a', 'shard_b', '{{moves}}', keyspace => '{keyspace}')");
    let split = Split::plan_by(cluster, &plan).unwrap();
    zoo::add_maps(cluster, split.id, cases).unwrap();
    assert_eq!(findings(cluster, split.id), Vec::<String>::new());
    split.call("start_dual_write").unwrap();
    split.wait("dual_write", LONG).unwrap();
    change(cluster, cases, 0);
    split.call("run_backfill").unwrap();
    split.wait("cutover_pending", LONG).unwrap();
    change(cluster, cases, 1);
    split.call("replay_tail").ok();
    split.wait("cutover_pending", LONG).unwrap();
    cluster.hold("cutover_disabled").unwrap();
    split.call("cutover").unwrap();
    split.wait_held("cutover_disabled", LIMIT).unwrap();
    change(cluster, cases, 2);
    cluster.fault("").unwrap();
    split.wait("completed", LONG).unwrap();
    let equal: Vec<Case> = cases.iter().filter(|case| case.maps.is_empty()).cloned().collect();
    let source = held(cluster, 0, &equal, "moves");
    assert!(source.iter().all(|rows| rows.len() > 1), "a table without rows");
    assert_same(&equal, "source and target", &source, &held(cluster, 1, &equal, "moves"));
    let stays = held(cluster, 0, cases, "stays");
    split.finish(LONG).unwrap();
    let empty = vec![vec![Vec::new()]; cases.len()];
    assert_same(cases, "moved rows on the source", &empty, &held(cluster, 0, cases, "moves"));
    assert_same(cases, "rows that stay", &stays, &held(cluster, 0, cases, "stays"));
    assert_same(cases, "rows that stay on the target", &empty, &held(cluster, 1, cases, "stays"));
}

/// What the check finds to be wrong.
fn findings(cluster: &Cluster, split: i64) -> Vec<String> {
    let query = "SELECT format('%s: %s', check_name, detail) FROM shard_split_check($1) WHERE NOT ok";
    let rows = cluster.superuser().unwrap().query(query, &[&split]).unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[test]
fn every_type_of_value_moves() {
    moves(&cluster(), "default", &values::all());
}

#[test]
fn every_type_of_key_moves() {
    moves(&cluster(), "default", &keys::all());
}

#[test]
fn every_shape_moves() {
    moves(&cluster(), "default", &shapes::all());
}

#[test]
fn what_is_not_known_is_refused() {
    let cluster = cluster();
    let cases = refused::all();
    prepare(&cluster, "default", &cases);
    let mut master = cluster.superuser().unwrap();
    master.batch_execute("SELECT shard_assign_many('{moves,stays}', 'shard_a')").unwrap();
    let split = Split::plan(&cluster, "shard_a", "shard_b", &["moves"]).unwrap();
    let found = findings(&cluster, split.id);
    let is_found = |case: &&Case| {
        let check = case.refused.unwrap();
        found.iter().any(|finding| {
            let (name, detail) = finding.split_once(&format!("{check}: ")).unwrap_or(("none", ""));
            ["", "source: ", "target: "].contains(&name)
                && (detail.starts_with(&format!("public.{}", case.table))
                    || detail.starts_with(&format!("public.\"{}\"", case.table)))
        })
    };
    let passed: Vec<&Case> = cases.iter().filter(|case| !is_found(case)).collect();
    assert!(passed.is_empty(), "not refused: {passed:#?}\nfound:\n{}", found.join("\n"));
    split.call("start_dual_write").unwrap();
    let refused = split.wait("dual_write", LIMIT).unwrap_err();
    assert!(refused.to_string().contains("the check has found"), "{refused}");
    for shard in &cluster.shards {
        let agent = "SELECT to_regnamespace('shardmaster_agent') IS NULL";
        let nothing: bool = cluster.owner_of(shard).unwrap().query_one(agent, &[]).unwrap().get(0);
        assert!(nothing, "{} has an agent", shard.key);
    }
}

/// The table of types in the docs says of each type of the server what it can do; what it
/// says is shown by a table of the zoo.
#[test]
fn each_known_type_is_in_the_zoo() {
    let docs = include_str!("../../docs/types.md");
    let rows = docs.lines().filter_map(|line| {
        let cells: Vec<&str> =
            line.strip_prefix("| `")?.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        Some((cells.first()?.to_string(), cells.get(1)?.to_string(), cells.get(2)?.to_string()))
    });
    let rows: Vec<(String, String, String)> = rows.collect();
    let values: BTreeSet<&str> = values::types().into_iter().collect();
    let keys: BTreeSet<&str> = keys::types().into_iter().collect();
    for (name, travels, key) in &rows {
        assert!(travels == "no" || values.contains(name.as_str()), "no value of type {name}");
        assert!(key == "no" || keys.contains(name.as_str()), "no key of type {name}");
    }
    let cluster = Cluster::servers(1, &["fsync = off"]).unwrap();
    let types = "SELECT format_type(oid, NULL) FROM pg_type
                  WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype IN ('b', 'r', 'm') AND typcategory <> 'A'";
    for row in cluster.servers[0].superuser(DATABASE).unwrap().query(types, &[]).unwrap() {
        let name: String = row.get(0);
        assert!(rows.iter().any(|known| known.0 == name), "type {name} is not in docs/types.md");
    }
}
