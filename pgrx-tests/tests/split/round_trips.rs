//! How often a split asks its shards, because on a slow line this determines how long it takes. Questions
//! whose answer is waited for are counted by phase, on both sides together. The number for each further table
//! must match docs/internals/benchmarks.md.

use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE, OWNER};
use shardmaster_tests::fixture::{self, LIMIT};
use shardmaster_tests::relay::Request;
use shardmaster_tests::relayed_cluster::RelayedCluster;
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use std::collections::BTreeMap;

/// Parts of splits, and how many questions each further table costs in them at most, in hundredths.
const PARTS: [(&str, usize); 8] = [
    // Its summary counts the rows of small tables one by one.
    ("check", 420),
    ("installation", 50),
    ("copy", 180),
    ("cutover", 20),
    ("finish", 160),
    ("guard drop", 20),
    ("installation and copy of another", 200),
    ("rollback of that", 90),
];

/// With this interval nothing is polled without a reason.
const RARELY: &str = "60s";

fn prepared(tables: usize, tail_interval: &str) -> RelayedCluster {
    let interval = format!("shardmaster.tail_interval = '{tail_interval}'");
    let config = ["fsync = off", "autovacuum = off", "shardmaster.max_lag = '60s'", &interval];
    let stage = RelayedCluster::of(Cluster::servers(2, &config).unwrap());
    for shard in &stage.cluster.shards {
        let mut owner = stage.cluster.owner_of(shard).unwrap();
        for number in 0..tables {
            owner
                .batch_execute(&format!(
                    "SET ROLE {OWNER};
                     CREATE TABLE t{number} (tenant text, id bigserial, v text, PRIMARY KEY (tenant, id));
                     GRANT ALL ON t{number}, t{number}_id_seq TO {CLIENT}; RESET ROLE"
                ))
                .unwrap();
        }
    }
    let mut source = stage.cluster.servers[0].superuser(DATABASE).unwrap();
    let mut master = stage.cluster.superuser().unwrap();
    for number in 0..tables {
        source
            .batch_execute(&format!(
                "INSERT INTO t{number} (tenant, v) SELECT tenant, 'v' || i
                   FROM generate_series(1, 100) i, unnest('{{moves, stays}}'::text[]) tenant; ANALYZE t{number}"
            ))
            .unwrap();
        let add = format!("SELECT shard_table_add('t{number}', 'tenant', key_type => 'text')");
        master.batch_execute(&add).unwrap();
    }
    master.batch_execute("SELECT shard_assign_many(ARRAY['moves', 'stays'], 'shard_a')").unwrap();
    for relay in [&stage.source, &stage.target] {
        relay.listen();
    }
    stage
}

/// Returns what both sides were asked since the last call.
fn heard(stage: &RelayedCluster) -> Vec<Request> {
    [&stage.source, &stage.target].into_iter().flat_map(|relay| relay.heard()).collect()
}

/// Returns what both sides are asked in each part of a split that finishes, and of one that is rolled back.
fn asked(tables: usize) -> Vec<Vec<Request>> {
    let stage = prepared(tables, RARELY);
    let cluster = &stage.cluster;
    let split = Split::plan(cluster, "shard_a", "shard_b", &["moves"]).unwrap();
    require_well(cluster, &split);
    let mut parts = vec![heard(&stage)];
    reach(&split, "start_dual_write", "dual_write");
    parts.push(heard(&stage));
    reach(&split, "run_backfill", "cutover_pending");
    parts.push(heard(&stage));
    reach(&split, "cutover", "completed");
    parts.push(heard(&stage));
    reach(&split, "finish", "finished");
    parts.push(heard(&stage));
    split.drop_guard().unwrap();
    parts.push(heard(&stage));
    let other = Split::plan(cluster, "shard_a", "shard_b", &["stays"]).unwrap();
    reach(&other, "start_dual_write", "dual_write");
    reach(&other, "run_backfill", "cutover_pending");
    parts.push(heard(&stage));
    reach(&other, "rollback", "rolled_back");
    parts.push(heard(&stage));
    parts
}

fn require_well(cluster: &Cluster, split: &Split<'_>) {
    let query = format!("SELECT count(*) FROM shard_split_check({}) WHERE NOT ok", split.id);
    let bad: i64 = cluster.superuser().unwrap().query_one(&query, &[]).unwrap().get(0);
    assert_eq!(bad, 0);
}

fn reach(split: &Split<'_>, call: &str, phase: &str) {
    split.call(call).unwrap();
    split.wait(phase, LIMIT).unwrap();
}

/// Prints the most frequent questions, so that some can be found which could be asked together.
fn tell(part: &str, heard: &[Request]) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for Request { application, text } in heard {
        let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let text: String =
            text.chars().filter(|c| !c.is_ascii_digit() && !c.is_control()).take(110).collect();
        let purpose: String = application.chars().filter(|c| !c.is_ascii_digit()).collect();
        *counts.entry(format!("{purpose}: {text}")).or_default() += 1;
    }
    let mut most: Vec<(&String, &usize)> = counts.iter().collect();
    most.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    println!("-- {part}: {}", heard.len());
    most.iter().take(25).for_each(|(text, count)| println!("   {count:5} {text}"));
}

#[test]
#[ignore = "make test-all: 1, 10 and 40 tables, each phase; make test has a_fence_is_a_few_ways_to_each_side"]
fn each_table_more_costs_few_questions() {
    let [one, ten, forty] = [1, 10, 40].map(asked);
    let mut bad = Vec::new();
    for (number, (part, most)) in PARTS.iter().enumerate() {
        tell(part, &forty[number]);
        let counts = [&one, &ten, &forty].map(|parts| parts[number].len());
        let each = counts[2].saturating_sub(counts[1]) * 100 / 30;
        let line =
            format!("{part}: {counts:?} for 1, 10, 40 tables: {each} in 100 tables more, {most} at most");
        println!("{line}");
        if each > *most {
            bad.push(line);
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("; "));
}

/// The triggers of several tables go in one message, each table's in a transaction of its own. The split
/// waits for a writer of one table, and the other tables stay usable.
#[test]
#[ignore = "make test-all: a writer in the way; make test has a_fence_is_a_few_ways_to_each_side"]
fn a_writer_in_the_way_of_one_table_keeps_nobody_from_another() {
    let stage = prepared(6, RARELY);
    let cluster = &stage.cluster;
    let mut in_the_way = fixture::client(cluster);
    in_the_way.batch_execute("BEGIN; UPDATE t4 SET v = 'open' WHERE tenant = 'moves' AND id = 1").unwrap();
    let split = Split::plan(cluster, "shard_a", "shard_b", &["moves"]).unwrap();
    split.call("start_dual_write").unwrap();
    wait::until("the split to wait for the writer", LIMIT, || {
        let waits_for: String = split.metric("coalesce(waiting_for, '')")?;
        Ok(waits_for.contains("lock on public.t4").then_some(()))
    })
    .unwrap();
    let mut other = fixture::client(cluster);
    other.batch_execute("SET statement_timeout = '10s'").unwrap();
    for number in (0..6).filter(|number| *number != 4) {
        other.batch_execute(&format!("UPDATE t{number} SET v = 'other' WHERE tenant = 'moves'")).unwrap();
    }
    assert_eq!(captured(cluster), "t0 t1 t2 t3");
    in_the_way.batch_execute("COMMIT").unwrap();
    split.wait("dual_write", LIMIT).unwrap();
    assert_eq!(captured(cluster), "t0 t1 t2 t3 t4 t5");
    reach(&split, "rollback", "rolled_back");
    assert_eq!(captured(cluster), "");
}

/// A step that finds nothing asks each side once, and ends both transactions at the same time.
#[test]
fn a_step_that_finds_nothing_is_three_ways_there_and_back() {
    let stage = prepared(10, "20ms");
    let split = Split::plan(&stage.cluster, "shard_a", "shard_b", &["moves"]).unwrap();
    reach(&split, "start_dual_write", "dual_write");
    reach(&split, "run_backfill", "cutover_pending");
    split.wait_settled(LIMIT).unwrap();
    let (mut all, mut steps) = (Vec::new(), 0);
    let _ = heard(&stage);
    // Steps are rare once nobody writes.
    wait::until("some steps", LIMIT, || {
        all.extend(heard(&stage));
        steps = steps_of(&all);
        Ok((steps >= 6).then_some(()))
    })
    .unwrap();
    // The lease and the size of the queues are checked between them.
    let asked = all.iter().filter(|heard| !heard.application.ends_with("control")).count();
    assert!(asked <= 4 * (steps + 1), "{asked} questions in {steps} steps");
}

/// Round trips to one side behind the fence, over all sessions: eight whose answers are waited for one after
/// the other, two commits, and one that is sent beside them. Questions to both sides at the same time
/// count once for each. After the decision the source reports once more how far its sequences are.
const FENCED: usize = 8 + 2 + 1 + 1;

/// Writers wait for a few round trips to the farther side, however many tables there are or were changed.
#[test]
fn a_fence_is_a_few_ways_to_each_side() {
    let fenced = |tables: usize| -> [usize; 2] {
        let stage = prepared(tables, "20ms");
        let split = Split::plan(&stage.cluster, "shard_a", "shard_b", &["moves"]).unwrap();
        reach(&split, "start_dual_write", "dual_write");
        reach(&split, "run_backfill", "cutover_pending");
        stage.cluster.hold("cutover_disabled").unwrap();
        split.call("cutover").unwrap();
        split.wait_held("cutover_disabled", LIMIT).unwrap();
        let mut client = stage.cluster.servers[0].connect(DATABASE, CLIENT).unwrap();
        for number in 0..5 {
            client
                .batch_execute(&format!("UPDATE t{number} SET v = 'last' WHERE tenant = 'moves' AND id < 5"))
                .unwrap();
        }
        let _ = heard(&stage);
        // Writers may continue here.
        stage.cluster.hold("cutover_moved").unwrap();
        split.wait_held("cutover_moved", LIMIT).unwrap();
        let ways = [&stage.source, &stage.target].map(|relay| {
            let heard = relay.heard();
            tell("a fence", &heard);
            // If a busy machine has delayed the worker, it asks both sides once more whether they are there.
            heard.iter().filter(|heard| heard.text.trim_matches(char::from(0)) != "SELECT 1").count()
        });
        stage.cluster.fault("").unwrap();
        split.wait("completed", LIMIT).unwrap();
        ways
    };
    let (few, many) = (fenced(6), fenced(40));
    for (few, many) in few.iter().zip(many) {
        assert!(*few <= FENCED && many <= FENCED, "{few} and {many} ways");
    }
}

/// The form of tables is read again where something may have changed, on either side, and not in each step.
#[test]
#[ignore = "make test-all: what is asked anew; make test has ddl::fingerprints::what_a_look_was_read_from_has_another_number_once_it_changes"]
fn a_step_looks_at_tables_again_where_they_may_have_changed() {
    let stage = prepared(3, "20ms");
    let split = Split::plan(&stage.cluster, "shard_a", "shard_b", &["moves"]).unwrap();
    reach(&split, "start_dual_write", "dual_write");
    reach(&split, "run_backfill", "cutover_pending");
    split.wait_settled(LIMIT).unwrap();
    some_steps(&stage);
    assert_eq!(looks(&some_steps(&stage)), 0);
    let changes = [
        (0, "CREATE INDEX ON t1 (v)"),
        (0, "ALTER TABLE t1 ALTER v SET STATISTICS 7"),
        (1, "CREATE INDEX ON t2 (v)"),
        (1, "ALTER TABLE t2 ALTER v SET STATISTICS 7"),
        (1, "GRANT SELECT ON t2 TO PUBLIC"),
    ];
    for (server, change) in changes {
        stage.cluster.servers[server].superuser(DATABASE).unwrap().batch_execute(change).unwrap();
        // Steps from before the change may be heard first.
        wait::until("a step to look again", LIMIT, || {
            write(&stage);
            Ok((looks(&heard(&stage)) > 0).then_some(()))
        })
        .unwrap_or_else(|error| panic!("{change}: {error}"));
        some_steps(&stage);
        assert_eq!(looks(&some_steps(&stage)), 0, "{change}");
    }
    // This does not change whether the sequence can be drawn from.
    let raised = "ALTER SEQUENCE t1_id_seq RESTART WITH 1000";
    stage.cluster.servers[0].superuser(DATABASE).unwrap().batch_execute(raised).unwrap();
    assert_eq!(looks(&some_steps(&stage)), 0);
}

fn looks(heard: &[Request]) -> usize {
    heard.iter().filter(|heard| heard.text.contains("EXECUTE observe")).count()
}

/// Returns what is asked in some steps. Writes make them frequent.
fn some_steps(stage: &RelayedCluster) -> Vec<Request> {
    let mut all = Vec::new();
    wait::until("some steps", LIMIT, || {
        write(stage);
        all.extend(heard(stage));
        Ok((steps_of(&all) >= 5).then_some(()))
    })
    .unwrap();
    all
}

fn steps_of(heard: &[Request]) -> usize {
    heard.iter().filter(|heard| heard.text.contains("ISOLATION LEVEL REPEATABLE READ")).count()
}

fn write(stage: &RelayedCluster) {
    let mut source = stage.cluster.servers[0].superuser(DATABASE).unwrap();
    source.batch_execute("UPDATE t0 SET v = 'again' WHERE tenant = 'moves' AND id = 1").unwrap();
}

/// Returns the source's tables that have triggers of a split.
fn captured(cluster: &Cluster) -> String {
    let tables = "SELECT coalesce(string_agg(DISTINCT c.relname, ' '), '') FROM pg_trigger t
        JOIN pg_class c ON c.oid = t.tgrelid WHERE NOT t.tgisinternal AND c.relname ~ '^t[0-9]'";
    cluster.servers[0].superuser(DATABASE).unwrap().query_one(tables, &[]).unwrap().get(0)
}
