//! Cutovers that are rehearsed, and those with a limited fence, a window, and a number of attempts.

use postgres::Client;
use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::fixture::{
    LIMIT, client, cluster, cut_over_and_compare, insert, plan, rows, source, state_of, to_pending,
};
use shardmaster_tests::single_fault::SingleFault;
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The points at which a rehearsal can be interrupted.
const POINTS: [&str; 7] = [
    "cutover_begin",
    "cutover_disabled",
    "cutover_locked",
    "cutover_fenced",
    "cutover_applied",
    "cutover_sequences",
    "cutover_reopened",
];

fn ask(split: &Split<'_>, call: &str) {
    split.superuser().unwrap().batch_execute(&call.replace("$1", &split.id.to_string())).unwrap();
}

/// Waits until the split reports that it waits for this.
fn wait_for(split: &Split<'_>, text: &str) {
    wait::until(&format!("\"{text}\" to be waited for"), LIMIT, || {
        let waiting: Option<String> = split.metric("waiting_for")?;
        Ok(waiting.is_some_and(|waiting| waiting.contains(text)).then_some(()))
    })
    .map_err(|e| e.context(&split.describe()))
    .unwrap();
}

/// Waits until nothing is requested any more. Returns the rehearsed time if the rehearsal reached the
/// point of the decision.
fn wait_rehearsed(split: &Split<'_>) -> Option<f64> {
    wait::until("the rehearsal", LIMIT, || {
        let asked = "SELECT count(*) FROM shardmaster.split_cutover";
        let left =
            split.superuser().and_then(|mut master| Ok(master.query_one(asked, &[])?.get::<_, i64>(0)));
        // If the worker was killed, the server restarts.
        Ok(left.is_ok_and(|left| left == 0).then_some(()))
    })
    .map_err(|e| e.context(&split.describe()))
    .unwrap();
    split.metric::<Option<f64>>("rehearsed_ms::float8").unwrap()
}

/// Returns where the keys are routed, and by which version.
fn routed(cluster: &Cluster) -> (String, i64) {
    let query = "SELECT shard_key, shard_routing_version() FROM shard_route('moves', 'write')";
    let row = cluster.superuser().unwrap().query_one(query, &[]).unwrap();
    (row.get(0), row.get(1))
}

/// Writes to the source until it is stopped, and counts the writes. None may be refused.
fn write_until(client: &mut Client, stop: &AtomicBool) -> i32 {
    let mut written = 0;
    while !stop.load(Ordering::Relaxed) {
        written += 1;
        client.batch_execute(&insert("moves", 10_000 + written)).unwrap();
        wait::rest();
    }
    written
}

#[test]
#[ignore = "make test-all: three rehearsals; make test has a_rollback_ends_a_rehearsal"]
fn a_rehearsal_changes_nothing() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    let before = routed(&cluster);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_until(&mut client(&cluster), &stop));
        for _ in 0..3 {
            ask(&split, "SELECT shard_split_rehearse($1)");
            assert!(wait_rehearsed(&split).is_some_and(|ms| ms > 0.0 && ms < 10_000.0));
        }
        stop.store(true, Ordering::Relaxed);
        // None of its writes was refused.
        assert!(writer.join().unwrap() > 0);
    });
    assert_eq!(split.phase().unwrap(), "cutover_pending");
    assert_eq!(split.metric::<String>("activity").unwrap(), "idle");
    assert_eq!(routed(&cluster), before);
    assert!(split.events().unwrap().contains("rehearsed: writers waited for at most"));
    split.wait_settled(LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
}

#[test]
#[ignore = "make test-all: what is told of it; make test has attempts_keep_to_their_fence"]
fn a_rehearsal_says_whom_it_waited_for() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    let mut writer = client(&cluster);
    writer.batch_execute(&format!("BEGIN; {}", insert("moves", 9001))).unwrap();
    ask(&split, "SELECT shard_split_rehearse($1, max_fence => '700 ms')");
    assert_eq!(wait_rehearsed(&split), None);
    let error: String = split.metric("error_message").unwrap();
    assert!(error.contains("pid"), "{error}");
    assert!(split.events().unwrap().contains("rehearsal: cutover aborted, waiting for"));
    // Nobody waits for it any more.
    client(&cluster).batch_execute(&insert("moves", 9002)).unwrap();
    writer.batch_execute("COMMIT").unwrap();
    split.wait_settled(LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
}

/// It is killed at any point, or rolled back at any point, and never decides.
#[test]
#[ignore = "make test-all: each point of it; make test has a_rollback_ends_a_rehearsal"]
fn an_interrupted_rehearsal_changes_nothing() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    let before = routed(&cluster);
    for (n, point) in (0..).zip(POINTS) {
        let fault = SingleFault::arm(&cluster, point, "kill").unwrap();
        let mut asks = split.superuser().unwrap();
        fault.by(|| asks.execute("SELECT shard_split_rehearse($1)", &[&split.id])).unwrap();
        fault.wait(LIMIT).unwrap();
        wait_rehearsed(&split);
        client(&cluster).batch_execute(&insert("moves", 8000 + n)).unwrap();
        assert_eq!(split.phase().unwrap(), "cutover_pending", "{point}");
        assert_eq!(routed(&cluster), before, "{point}");
        split.wait_settled(LIMIT).unwrap();
    }
    cut_over_and_compare(&cluster, &split);
}

#[test]
fn a_rollback_ends_a_rehearsal() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    cluster.hold("cutover_sequences").unwrap();
    ask(&split, "SELECT shard_split_rehearse($1)");
    split.wait_held("cutover_sequences", LIMIT).unwrap();
    split.call("rollback").unwrap();
    cluster.fault("").unwrap();
    split.wait("rolled_back", LIMIT).unwrap();
    assert!(rows(&cluster, 1).is_empty());
    client(&cluster).batch_execute(&insert("moves", 9001)).unwrap();
    let left: i64 = cluster
        .superuser()
        .unwrap()
        .query_one("SELECT count(*) FROM shardmaster.split_cutover", &[])
        .unwrap()
        .get(0);
    assert_eq!(left, 0);
}

/// While a writer's transaction stays open, no attempt keeps others waiting for longer than the limit. Once
/// it has ended, the next attempt succeeds.
#[test]
fn attempts_keep_to_their_fence() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    let mut writer = client(&cluster);
    writer.batch_execute(&format!("BEGIN; {}", insert("moves", 9001))).unwrap();
    // The first attempt fails, whoever writes, and keeps writers waiting at least until now.
    cluster.hold("cutover_disabled").unwrap();
    ask(&split, "SELECT shard_split_cutover($1, max_fence => '400 ms', attempts => 10)");
    split.wait_held("cutover_disabled", LIMIT).unwrap();
    let waited = "extract(epoch FROM clock_timestamp() - fenced_since)::float8 * 1000";
    let waited = wait::until("longer than an attempt may take", LIMIT, || {
        Ok(Some(split.metric::<f64>(waited)?).filter(|waited| *waited > 600.0))
    })
    .unwrap();
    cluster.fault("").unwrap();
    wait::until("a second attempt to be announced", LIMIT, || {
        let one = client(&cluster);
        let began = Instant::now();
        { one }.batch_execute("UPDATE items SET val = 'again' WHERE tenant = 'moves' AND id = 2")?;
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        Ok(split.events()?.contains("attempt 2 of 10 follows").then_some(()))
    })
    .unwrap();
    wait::until("the reason to be told", LIMIT, || {
        Ok(split
            .metric::<Option<String>>("waiting_for")?
            .is_some_and(|w| w.contains("of 10 of the cutover, at"))
            .then_some(()))
    })
    .unwrap();
    assert_eq!(split.metric::<Option<String>>("error_message").unwrap(), None);
    writer.batch_execute("COMMIT").unwrap();
    split.wait("completed", LIMIT).unwrap();
    assert_eq!(rows(&cluster, 0), rows(&cluster, 1));
    // Writers have waited for the failed attempts as well.
    let fence: f64 = split.metric("fence_ms::float8").unwrap();
    assert!(fence >= waited, "{fence}, {waited}");
}

#[test]
#[ignore = "make test-all: what is told of it; make test has attempts_keep_to_their_fence"]
fn the_last_attempt_tells_why() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    let mut writer = client(&cluster);
    writer.batch_execute(&format!("BEGIN; {}", insert("moves", 9001))).unwrap();
    ask(&split, "SELECT shard_split_cutover($1, max_fence => '300 ms', attempts => 2)");
    let given_up = split.wait("completed", LIMIT).unwrap_err();
    assert_eq!(given_up.sqlstate(), Some("55P03"), "{given_up}");
    assert_eq!(split.phase().unwrap(), "cutover_pending");
    writer.batch_execute("COMMIT").unwrap();
    split.wait_settled(LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
}

#[test]
fn a_cutover_begins_within_its_window() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    ask(&split, "SELECT shard_split_cutover($1, not_before => clock_timestamp() + interval '3 s')");
    wait_for(&split, "the cutover, not before");
    // It applies changes meanwhile.
    client(&cluster).batch_execute(&insert("moves", 9001)).unwrap();
    let mut target = cluster.servers[1].superuser(DATABASE).unwrap();
    wait::until_true(&mut target, "the row", LIMIT, "SELECT count(*) = 1 FROM items WHERE id = 9001")
        .unwrap();
    assert_eq!(split.phase().unwrap(), "cutover_pending");
    split.wait("completed", LIMIT).unwrap();
    let late = "SELECT cutover_at >= (SELECT max(at) FROM shard_split_events(split_id) WHERE detail = 'completed requested')
                                      + interval '2 s' FROM shard_split_metrics($1)";
    assert!(split.superuser().unwrap().query_one(late, &[&split.id]).unwrap().get::<_, bool>(0));
}

#[test]
#[ignore = "make test-all: its end; make test has a_cutover_begins_within_its_window"]
fn a_window_that_is_over_ends_the_cutover() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    let mut writer = client(&cluster);
    writer.batch_execute(&format!("BEGIN; {}", insert("moves", 9001))).unwrap();
    ask(
        &split,
        "SELECT shard_split_cutover($1, max_fence => '200 ms', until => clock_timestamp() + interval '3 s', attempts => 1000)",
    );
    let given_up = split.wait("completed", LIMIT).unwrap_err();
    assert_eq!(given_up.sqlstate(), Some("55P03"), "{given_up}");
    writer.batch_execute("COMMIT").unwrap();
    split.wait_settled(LIMIT).unwrap();
    // A cutover does not begin either if the window ends while no worker runs.
    split.call("pause").unwrap();
    ask(&split, "SELECT shard_split_cutover($1, until => clock_timestamp() + interval '1 s')");
    let mut master = cluster.superuser().unwrap();
    let over = "SELECT until < clock_timestamp() FROM shardmaster.split_cutover";
    wait::until_true(&mut master, "the end of the window", LIMIT, over).unwrap();
    split.call("resume").unwrap();
    let given_up = split.wait("completed", LIMIT).unwrap_err();
    assert!(given_up.to_string().contains("its window is over"), "{given_up}");
    assert_eq!(split.phase().unwrap(), "cutover_pending");
}

#[test]
fn what_cannot_be_is_refused() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    let mut master = cluster.superuser().unwrap();
    let mut state = |call: &str| {
        let error = master.batch_execute(&call.replace("$1", &split.id.to_string())).unwrap_err();
        state_of(&error).to_owned()
    };
    assert_eq!(state("SELECT shard_split_rehearse($1)"), "55000");
    to_pending(&split);
    for wrong in [
        "max_fence => '0'",
        "max_fence => '-1 s'",
        "attempts => 0",
        "until => clock_timestamp() - interval '1 s'",
        "not_before => clock_timestamp() + interval '2 h', until => clock_timestamp() + interval '1 h'",
    ] {
        assert_eq!(state(&format!("SELECT shard_split_cutover($1, {wrong})")), "22023", "{wrong}");
    }
    assert_eq!(state("SELECT shard_split_rehearse($1, '0')"), "22023");
    ask(&split, "SELECT shard_split_cutover($1, not_before => clock_timestamp() + interval '1 h')");
    assert_eq!(state("SELECT shard_split_rehearse($1)"), "55000");
    // Requested again, it has no window.
    cut_over_and_compare(&cluster, &split);
    assert_eq!(state("SELECT shard_split_rehearse($1)"), "55000");
    drop(source(&cluster));
}

/// The last request counts, up to the transaction that decides.
#[test]
#[ignore = "make test-all: another window; make test has a_cutover_begins_within_its_window"]
fn a_cutover_under_way_is_put_off_by_another_window() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    cluster.hold("cutover_sequences").unwrap();
    split.call("cutover").unwrap();
    split.wait_held("cutover_sequences", LIMIT).unwrap();
    ask(&split, "SELECT shard_split_cutover($1, not_before => clock_timestamp() + interval '1 h')");
    cluster.fault("").unwrap();
    wait_for(&split, "the cutover, not before");
    assert_eq!(split.phase().unwrap(), "cutover_pending");
    client(&cluster).batch_execute(&insert("moves", 9001)).unwrap();
    cut_over_and_compare(&cluster, &split);
}

/// An infinite end of the window is allowed, and causes no errors in later calls.
#[test]
#[ignore = "make test-all: a window without an end; make test has what_cannot_be_is_refused"]
fn a_window_may_have_no_end() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    ask(&split, "SELECT shard_split_cutover($1, not_before => 'infinity')");
    wait_for(&split, "the cutover, not before infinity");
    for call in ["pause", "resume", "verify"] {
        split.call(call).unwrap();
    }
    ask(&split, "SELECT shard_split_cutover($1, not_before => '-infinity', until => 'infinity')");
    split.wait("completed", LIMIT).unwrap();
    assert_eq!(rows(&cluster, 0), rows(&cluster, 1));
}
