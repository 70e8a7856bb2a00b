//! Lines that are long, narrow, lossy, silent or cut. Nothing is lost, writers are served or told to retry
//! within the deadline of a cutover, and the operator is told which line failed and since when. Each line
//! leads from the master to one shard. Clients are near their shards.

use postgres::{Client, NoTls};
use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::disasters::{self, Disaster, INJECTIONS, Injection, Link, OF_LINKS, SplitStage as At};
use shardmaster_tests::env::{at_most, is_long_run};
use shardmaster_tests::fixture::{LIMIT, client, cut_over_and_compare, load, plan, state_of, to_pending};
use shardmaster_tests::relay::Relay;
use shardmaster_tests::relayed_cluster::{
    GRACE, RelayedCluster, TIMEOUT, given_up, interrupt, is_routed_back, terminate, writes_within,
};
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use shardmaster_tests::workload::{Sharding, Workload};
use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

/// The deadline of the cutovers under load, which is the default of `shardmaster.cutover_timeout`.
const DEADLINE: Duration = Duration::from_secs(10);
/// The limit of a line that is neither long nor narrow, on a busy machine.
const NEAR: Duration = Duration::from_millis(500);

/// Prints a text. It does not use println!, whose output is shown only if the test fails.
fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn ask(session: &mut Client, query: &str) -> Duration {
    let began = Instant::now();
    session.simple_query(query).unwrap();
    began.elapsed()
}

/// Tests the harness itself: a line is as late, narrow and lossy as it was set, and no more.
#[test]
fn a_line_is_what_it_is_said_to_be() {
    let cluster = Cluster::servers(1, &["fsync = off"]).unwrap();
    let line = Relay::before(&cluster.servers[0]).unwrap();
    let connect = || Client::connect(&line.conninfo(DATABASE, "postgres"), NoTls).unwrap();
    let mut session = connect();
    // The result has two megabytes.
    let much = "SELECT repeat('x', 1000) FROM generate_series(1, 2000)";
    assert!(ask(&mut session, "SELECT 1") < NEAR);
    // The line is late by its length in both directions, however much is sent. It is not narrower.
    let delay = Duration::from_millis(300);
    line.delay(delay);
    assert!(ask(&mut session, "SELECT 1") >= 2 * delay);
    let took = ask(&mut session, much);
    assert!(took >= 2 * delay && took < 8 * delay, "{took:?}");
    line.mend();
    // On a narrow line two megabytes take two seconds, and two sessions share it.
    line.throttle(1_000_000);
    let mut other = connect();
    let together = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| ask(&mut other, much));
        ask(&mut session, much);
    });
    assert!(together.elapsed() >= Duration::from_secs(4), "{:?}", together.elapsed());
    line.mend();
    // On a lossy line nothing is missing or out of order, and some of it is late.
    line.lose(30);
    let mut lossy = connect();
    let began = Instant::now();
    for number in 0..20 {
        let row = lossy.query_one("SELECT $1::int, repeat('x', 100000)", &[&number]).unwrap();
        assert_eq!((row.get::<_, i32>(0), row.get::<_, &str>(1).len()), (number, 100_000));
    }
    assert!(began.elapsed() >= Duration::from_millis(400), "{:?}", began.elapsed());
    line.mend();
    // On a silent line not even the end of a session arrives, so the server keeps the session.
    line.silence();
    // The session waits for its server to end the connection.
    let end = std::thread::spawn(move || drop(lossy));
    let mut near = cluster.servers[0].superuser(DATABASE).unwrap();
    let sessions = "SELECT count(*) = 3 FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    let seen: bool = near.query_one(sessions, &[]).unwrap().get(0);
    assert!(seen);
    line.mend();
    end.join().unwrap();
    wait::until_true(&mut near, "its server to hear of it", LIMIT, &sessions.replace('3', "2")).unwrap();
}

/// A fault of the lines to the source and to the target.
type LineFault = fn(&RelayedCluster);

/// Runs a split of a tenant under load with each of these faults.
fn under_load(faults: &[(&str, LineFault)]) {
    let lines = ["fsync = off", "shardmaster.tail_interval = 20", "shardmaster.remote_timeout = '10s'"];
    let stage = RelayedCluster::of(Cluster::servers(2, &lines).unwrap());
    let mut workload = Workload::prepare(&stage.cluster, load(Sharding::Directory(vec![0; 8]))).unwrap();
    let tenants: Vec<String> = workload.options().moving_names().iter().map(|t| (*t).to_owned()).collect();
    workload.start();
    workload.wait_for(300, LIMIT).unwrap();
    for (tenant, (name, fault)) in tenants.iter().zip(faults) {
        fault(&stage);
        let began = Instant::now();
        let split = Split::plan(&stage.cluster, "shard_a", "shard_b", &[tenant]).unwrap();
        split.run(|_| ()).unwrap_or_else(|e| panic!("{name}: {e}"));
        workload.wait_for(200, LIMIT).unwrap();
        split.finish(LIMIT).unwrap_or_else(|e| panic!("{name}: {e}; {}", split.describe()));
        workload.wait_for(200, LIMIT).unwrap();
        let fence: String = split.metric("fence_ms::text").unwrap();
        tell(&format!("{name}: {:.1} s, writers waited at most {fence} ms", began.elapsed().as_secs_f64()));
        stage.source.mend();
        stage.target.mend();
    }
    workload.stop().unwrap();
    let report = workload.report(&stage.cluster).unwrap();
    report.keep();
    // Nothing is lost, doubled or misplaced, and clients got no error but "retry".
    assert!(report.is_clean(), "{report}");
    assert!(report.stall_moving < DEADLINE + GRACE, "{report}");
    // Clients of tenants that stay wait for no line.
    assert!(report.stall_staying < TIMEOUT, "{report}");
}

#[test]
fn splits_go_over_long_lines_under_load() {
    let faults: [(&str, LineFault); 2] = [
        ("20 ms to the target", |stage| stage.target.delay(Duration::from_millis(20))),
        ("80 ms to the source", |stage| stage.source.delay(Duration::from_millis(80))),
    ];
    under_load(&faults[..at_most(1).min(2)]);
}

#[test]
#[ignore = "make test-all: narrow and lossy lines; make test has splits_go_over_long_lines_under_load"]
fn splits_go_over_bad_lines_under_load() {
    under_load(&[
        ("300 kB/s to the target", |stage| stage.target.throttle(300_000)),
        ("1 % lost to the source", |stage| stage.source.lose(1)),
    ]);
}

#[test]
#[ignore = "the other lines of the two before it"]
fn splits_go_over_all_lines_under_load() {
    under_load(&[
        ("80 ms to the target", |stage| stage.target.delay(Duration::from_millis(80))),
        ("20 ms to the source", |stage| stage.source.delay(Duration::from_millis(20))),
        ("300 kB/s to the source", |stage| stage.source.throttle(300_000)),
        ("80 ms to both, 1 % lost to the source", |stage| {
            stage.source.delay(Duration::from_millis(80));
            stage.target.delay(Duration::from_millis(80));
            stage.source.lose(1);
        }),
    ]);
}

/// The fault of a line, and the point of the split at which it happens.
type Cell = (Disaster, &'static Injection);

fn injection(name: &str, stage: At) -> &'static Injection {
    let mut all = OF_LINKS.iter().chain(INJECTIONS);
    all.find(|one| one.name == name && one.stage == stage).unwrap()
}

/// Runs cells in parallel, since each of them mostly waits, and reports all failures together.
fn cells(cells: Vec<Cell>, outage: Duration, at_once: usize) {
    let (left, failures) = (Mutex::new(cells.into_iter()), Mutex::new(Vec::new()));
    let walk = || {
        loop {
            let Some((disaster, injection)) = left.lock().unwrap().next() else { return };
            let cell = format!("{disaster:?} at {} ({:?}) for {outage:?}", injection.name, injection.stage);
            match disasters::run_for(disaster, injection, Some(outage)) {
                Ok(shown) => tell(&format!("{cell}: {shown}")),
                Err(error) => {
                    tell(&format!("{cell}: FAILED: {error}"));
                    failures.lock().unwrap().push(format!("{cell}: {error}"));
                }
            }
        }
    };
    std::thread::scope(|scope| (0..at_once).for_each(|_| drop(scope.spawn(walk))));
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} cells failed:\n{}", failures.len(), failures.join("\n\n"));
}

/// Returns every line at every point, or at those whose names begin with a word of SHARDMASTER_INJECTIONS.
fn whole() -> Vec<Cell> {
    use Disaster::{Cut, Silent};
    let words = std::env::var("SHARDMASTER_INJECTIONS").ok();
    let is_wanted =
        |name: &str| words.as_ref().is_none_or(|words| words.split(',').any(|word| name.starts_with(word)));
    let all = OF_LINKS.iter().chain(INJECTIONS).filter(|injection| is_wanted(injection.name));
    let of = |injection| {
        [Silent(Link::Target), Silent(Link::Source), Cut(Link::Target), Cut(Link::Source)]
            .map(|disaster| (disaster, injection))
    };
    all.flat_map(of).collect()
}

/// Returns each line once for every point, alternately silent and cut.
fn alternating() -> Vec<Cell> {
    let is_its_turn = |(number, (disaster, _)): &(usize, Cell)| {
        let is_silent = matches!(disaster, Disaster::Silent(_));
        is_silent == ((number / 4 + number % 2) % 2 == 0)
    };
    whole().into_iter().enumerate().filter(is_its_turn).map(|(_, cell)| cell).collect()
}

/// The outage is longer than `shardmaster.remote_timeout` of these clusters, and longer than a cutover may take.
#[test]
fn a_line_that_is_away_for_ten_seconds_loses_nothing() {
    use Disaster::{Cut, Silent};
    let outage = Duration::from_secs(10);
    if is_long_run() {
        return cells(whole(), outage, 6);
    }
    // One cell of each kind, before the fence and after it. `disasters` has lines at each stage.
    let chosen = [
        (Silent(Link::Target), "step_committed", At::Tailing),
        (Cut(Link::Source), "cutover_applied", At::Fenced),
    ];
    cells(chosen.map(|(what, name, stage)| (what, injection(name, stage))).into(), outage, 6);
}

/// The outage is shorter than `shardmaster.remote_timeout`, so pending answers arrive.
#[test]
#[ignore = "make test-all: lines that stall; make test has faults::disasters::the_link_to_the_target_is_slow"]
fn a_line_that_stalls_for_two_seconds_is_waited_for() {
    use Disaster::Silent;
    let chosen = [
        (Silent(Link::Target), "cutover_applied", At::Fenced),
        (Silent(Link::Target), "step_window", At::Copying),
        (Silent(Link::Source), "cutover_locked", At::Closing),
        (Silent(Link::Source), "finish_batch", At::Finishing),
    ];
    let chosen = chosen.map(|(what, name, stage)| (what, injection(name, stage)));
    cells(chosen.into_iter().take(at_most(1)).collect(), Duration::from_secs(2), 4);
}

/// Tries each line once at every point. Each cell takes ten minutes, so they are divided into parts, which
/// run one after the other. A run that was ended has completed some of them.
fn away_for_ten_minutes(part: usize, parts: usize) {
    // With more at the same time, clients that are never kept out would wait for a processor.
    let at_once = 6 * std::thread::available_parallelism().map_or(1, usize::from);
    let cells_of_it = alternating().into_iter().skip(part - 1).step_by(parts);
    cells(cells_of_it.collect(), Duration::from_secs(600), at_once);
}

macro_rules! ten_minutes {
    ($($name:ident $part:literal),*) => { $(
        #[test]
        #[ignore = "hours; `a_line_that_is_away_for_ten_seconds_loses_nothing` does it for less long"]
        fn $name() {
            away_for_ten_minutes($part, 14);
        }
    )* };
}

ten_minutes! {
    a_line_that_is_away_for_ten_minutes_1_of_14 1,
    a_line_that_is_away_for_ten_minutes_2_of_14 2,
    a_line_that_is_away_for_ten_minutes_3_of_14 3,
    a_line_that_is_away_for_ten_minutes_4_of_14 4,
    a_line_that_is_away_for_ten_minutes_5_of_14 5,
    a_line_that_is_away_for_ten_minutes_6_of_14 6,
    a_line_that_is_away_for_ten_minutes_7_of_14 7,
    a_line_that_is_away_for_ten_minutes_8_of_14 8,
    a_line_that_is_away_for_ten_minutes_9_of_14 9,
    a_line_that_is_away_for_ten_minutes_10_of_14 10,
    a_line_that_is_away_for_ten_minutes_11_of_14 11,
    a_line_that_is_away_for_ten_minutes_12_of_14 12,
    a_line_that_is_away_for_ten_minutes_13_of_14 13,
    a_line_that_is_away_for_ten_minutes_14_of_14 14
}

/// The points that are left out have tests of their own: full queues, changed tables, redirects, reverse
/// splits, streams, withdrawn decisions.
#[test]
fn no_point_is_left_out() {
    let cluster = Cluster::servers(0, &["fsync = off"]).unwrap();
    let query = "SELECT point FROM shard_split_points()
                  WHERE point !~ '^((overflow|redirect|restart|reshape|streams?|withdraw)_|reverse_(guarded|left))'";
    for row in cluster.superuser().unwrap().query(query, &[]).unwrap() {
        let point: &str = row.get(0);
        let mut all = OF_LINKS.iter().chain(INJECTIONS);
        assert!(all.any(|injection| injection.name == point), "{point}");
    }
}

/// Returns since when the line is down, which an operator must see wherever he looks.
fn reads(split: &Split<'_>, shard: &str, side: &str, struck: SystemTime) -> SystemTime {
    let named = format!("shard \"{shard}\"");
    let reads = || {
        let row = split.superuser()?.query_one(
            "SELECT activity, coalesce(waiting_for, ''), retrying_since, attempts FROM shard_split_metrics($1)",
            &[&split.id],
        )?;
        let (activity, waiting): (&str, &str) = (row.get(0), row.get(1));
        let since: Option<SystemTime> = row.get(2);
        let is_told = activity == "retrying" && waiting.contains(&named) && row.get::<_, i32>(3) > 1;
        Ok(since.filter(|_| is_told))
    };
    let since = wait::until(&format!("the operator to be told of {named}"), LIMIT, reads)
        .unwrap_or_else(|e| panic!("{e}; {}", split.describe()));
    assert!(since >= struck && since <= SystemTime::now(), "{since:?}, struck at {struck:?}");
    let mut master = split.superuser().unwrap();
    let stamp: String = master
        .query_one(
            "SELECT date_trunc('second', retrying_since)::text FROM shard_split_metrics($1)",
            &[&split.id],
        )
        .unwrap()
        .get(0);
    let line = "SELECT shardmaster.split_line($1)";
    let says = || {
        let line: String = split.superuser()?.query_one(line, &[&split.id])?.get(0);
        Ok((line.contains(&format!("retrying since {stamp}")) && line.contains(&named)).then_some(()))
    };
    wait::until("the line of shard_split_run to say so", LIMIT, says).unwrap();
    let finding =
        "SELECT EXISTS (SELECT FROM shard_split_diagnose($1) WHERE place = 'master' AND problem LIKE $2),
                          EXISTS (SELECT FROM shard_split_diagnose($1) WHERE place LIKE $3)";
    let (since_then, place) = (format!("%since {stamp}%"), format!("{side} {named}%"));
    let found = || {
        let row = split.superuser()?.query_one(finding, &[&split.id, &since_then, &place])?;
        Ok((row.get(0) && row.get(1)).then_some(()))
    };
    wait::until("shard_split_diagnose to find it", LIMIT, found).unwrap();
    since
}

/// Every statement of the moving tenant is answered in time, with "retry" if not with success. The statements
/// of the other tenant are served.
fn is_answered(cluster: &Cluster) {
    let (mut writer, mut stays) = (client(cluster), client(cluster));
    for _ in 0..3 {
        let began = Instant::now();
        let answer = writer.batch_execute("UPDATE items SET val = 'x' WHERE tenant = 'moves' AND id = 4");
        assert!(began.elapsed() < TIMEOUT + GRACE, "{:?}", began.elapsed());
        if let Err(error) = answer {
            assert!(["SM002", "40001"].contains(&state_of(&error)), "{error}");
        }
        stays.batch_execute("UPDATE items SET val = 'x' WHERE tenant = 'stays' AND id = 3").unwrap();
    }
    let began = Instant::now();
    if let Err(error) = cluster.client().unwrap().batch_execute("SELECT shard_route('moves')") {
        assert_eq!(state_of(&error), "SM002", "{error}");
    }
    assert!(began.elapsed() < TIMEOUT + GRACE, "{:?}", began.elapsed());
}

/// The timeouts are longer than a cutover waits for a shard, and short enough for a test.
const SETTINGS: [&str; 2] = ["shardmaster.remote_timeout = '3s'", "shardmaster.route_wait_timeout = '3s'"];

/// The line to the target fails right after the fence and does not come back.
fn target_gone(point: &str, strike: fn(&Relay)) {
    let stage = RelayedCluster::new(&SETTINGS);
    let split = plan(&stage.cluster);
    to_pending(&split);
    let struck = SystemTime::now();
    interrupt(&split, &stage.cluster, point, || strike(&stage.target));
    writes_within(&mut client(&stage.cluster), TIMEOUT + GRACE);
    given_up(&split);
    let error: String = split.metric("error_message").unwrap();
    assert!(error.contains("shard \"shard_b\""), "{error}");
    assert!(is_routed_back(&stage.cluster));
    let since = reads(&split, "shard_b", "target", struck);
    // The next worker has not tried anything yet, and keeps the time since when the line is down.
    terminate(&stage.cluster);
    assert_eq!(reads(&split, "shard_b", "target", struck), since);
    is_answered(&stage.cluster);
    let mut master = stage.cluster.superuser().unwrap();
    master.execute("SELECT shard_split_rollback($1, target_lost => true)", &[&split.id]).unwrap();
    split.wait("rolled_back", LIMIT).unwrap();
    assert_eq!(split.metric::<Option<SystemTime>>("retrying_since").unwrap(), None);
    writes_within(&mut client(&stage.cluster), GRACE);
}

/// The line to the source fails. Only its worker can open the source, and the line comes back late.
fn source_gone(point: &str, strike: fn(&Relay)) {
    let stage = RelayedCluster::new(&SETTINGS);
    let split = plan(&stage.cluster);
    to_pending(&split);
    let struck = SystemTime::now();
    interrupt(&split, &stage.cluster, point, || strike(&stage.source));
    is_answered(&stage.cluster);
    let since = reads(&split, "shard_a", "source", struck);
    terminate(&stage.cluster);
    assert_eq!(reads(&split, "shard_a", "source", struck), since);
    is_answered(&stage.cluster);
    stage.source.mend();
    writes_within(&mut client(&stage.cluster), LIMIT);
    split.wait_settled(LIMIT).unwrap();
    assert_eq!(split.metric::<Option<SystemTime>>("retrying_since").unwrap(), None);
    cut_over_and_compare(&stage.cluster, &split);
}

#[test]
#[ignore = "make test-all: the target's line; make test has cutover::deadlines::a_link_that_falls_silent_keeps_no_writer_out"]
fn a_target_whose_line_is_gone_behind_the_fence_keeps_no_writer_out() {
    target_gone("cutover_fenced", Relay::silence);
    target_gone("cutover_applied", Relay::cut);
}

#[test]
#[ignore = "make test-all: the source's line, to its end; make test has a_line_that_is_away_for_ten_seconds_loses_nothing"]
fn a_source_whose_line_is_gone_behind_the_fence_has_its_writers_retry() {
    if is_long_run() {
        source_gone("cutover_fenced", Relay::cut);
    }
    source_gone("cutover_applied", Relay::silence);
}

/// The line fails after the master has decided, when the target is needed.
#[test]
#[ignore = "make test-all: after the decision; make test has a_line_that_is_away_for_ten_seconds_loses_nothing"]
fn a_line_that_is_gone_behind_the_decision_is_named() {
    let stage = RelayedCluster::new(&SETTINGS);
    let split = plan(&stage.cluster);
    to_pending(&split);
    let struck = SystemTime::now();
    interrupt(&split, &stage.cluster, "cutover_decided", || stage.target.silence());
    let since = reads(&split, "shard_b", "target", struck);
    terminate(&stage.cluster);
    assert_eq!(reads(&split, "shard_b", "target", struck), since);
    is_answered_behind_the_decision(&stage.cluster);
    stage.target.mend();
    split.wait("completed", LIMIT).unwrap();
    split.finish(LIMIT).unwrap();
}

/// Checks both shards: the source was not yet told that it has moved, and the target is closed.
fn is_answered_behind_the_decision(cluster: &Cluster) {
    let update = "UPDATE items SET val = 'x' WHERE tenant = 'moves' AND id = 4";
    for server in [0, 1] {
        let mut writer = cluster.servers[server].connect(DATABASE, "app").unwrap();
        let began = Instant::now();
        let error = writer.batch_execute(update).expect_err("nobody may write");
        assert!(["SM001", "SM002", "40001"].contains(&state_of(&error)), "{error}");
        assert!(began.elapsed() < TIMEOUT + GRACE, "{:?}", began.elapsed());
    }
}
