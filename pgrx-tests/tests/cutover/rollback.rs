//! Rollbacks from every phase before `completed`, and from every step of a cutover before its decision,
//! repeatedly with one plan. Then the split runs to its end. A client writes all the time.

use shardmaster_tests::ack_log::{AckLog, Rows};
use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::env::is_long_run;
use shardmaster_tests::fixture;
use shardmaster_tests::matrix::{create_tables, objects};
use shardmaster_tests::split::Split;
use shardmaster_tests::{Result, wait};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(180);

/// The place at which the operator rolls a split back.
#[derive(Clone, Copy, Debug)]
enum StartingPoint {
    /// A phase in which it stays.
    Phase(&'static str),
    /// A point at which its worker is held. It is released after the call.
    Point(&'static str),
}

const TENANT: &str = "tenant";

struct Fixture {
    cluster: Cluster,
}

impl Fixture {
    fn new() -> Fixture {
        let cluster = Cluster::servers(2, &["fsync = off", "shardmaster.tail_interval = 20"]).unwrap();
        create_tables(&cluster).unwrap();
        Fixture { cluster }
    }

    /// Rolls one split back from one place after the other, and then runs it to its end.
    fn run(&self, places: &[StartingPoint]) -> Result<()> {
        let mut master = self.cluster.superuser()?;
        master.execute("SELECT shard_assign($1, 'shard_a')", &[&TENANT])?;
        let ack_log = AckLog::open(&self.cluster, TENANT, "default")?;
        let before = self.all_objects()?;
        let version: i64 = master.query_one("SELECT shard_routing_version()", &[])?.get(0);
        let split = Split::plan(&self.cluster, "shard_a", "shard_b", &[TENANT])?;
        for from in places {
            let undone = self.roll_back(&split, *from, version);
            undone.map_err(|error| error.context(&format!("{from:?}")))?;
            ack_log.wait_for(5, LIMIT)?;
            self.require_objects(&before, &format!("after the rollback from {from:?}"))?;
        }

        split.call("start_dual_write")?;
        split.run(|_| ())?;
        ack_log.wait_for(5, LIMIT)?;
        split.finish(LIMIT)?;
        split.drop_guard()?;
        ack_log.wait_for(5, LIMIT)?;
        self.require_objects(&before, "after the guard")?;
        let differences = ack_log.close()?.differences(&self.rows(1, "items")?, &self.rows(1, "notes")?);
        if differences.is_empty() { Ok(()) } else { Err(differences.join("\n").into()) }
    }

    fn roll_back(&self, split: &Split<'_>, from: StartingPoint, version: i64) -> Result<()> {
        self.go_to(split, from)?;
        split.call("rollback")?;
        self.cluster.fault("")?;
        split.wait("rolled_back", LIMIT)?;
        self.check_undone(split, version)
    }

    fn go_to(&self, split: &Split<'_>, from: StartingPoint) -> Result<()> {
        if let StartingPoint::Point(point) = from {
            self.cluster.hold(point)?;
        }
        let steps =
            [("planning", ""), ("dual_write", "start_dual_write"), ("cutover_pending", "run_backfill")];
        for (phase, call) in steps {
            if !call.is_empty() {
                split.call(call)?;
            }
            match from {
                StartingPoint::Phase(wanted) => {
                    if !call.is_empty() {
                        split.wait(phase, LIMIT)?;
                    }
                    if wanted == phase {
                        return Ok(());
                    }
                }
                StartingPoint::Point(point)
                    if call == "start_dual_write" && point.starts_with("install_") =>
                {
                    return split.wait_held(point, LIMIT);
                }
                StartingPoint::Point(point) if call == "run_backfill" && !point.starts_with("cutover_") => {
                    return split.wait_held(point, LIMIT);
                }
                StartingPoint::Point(_) => {}
            }
        }
        split.wait("cutover_pending", LIMIT)?;
        split.call("cutover")?;
        match from {
            StartingPoint::Point(point) => split.wait_held(point, LIMIT),
            StartingPoint::Phase(phase) => Err(format!("no way to {phase}").into()),
        }
    }

    /// Checks that everything is as if the split had never begun.
    fn check_undone(&self, split: &Split<'_>, version: i64) -> Result<()> {
        let mut master = self.cluster.superuser()?;
        let row = master.query_one(
            "SELECT format('%s %s %s %s %s %s', shard_routing_version(), shard_of($2), shard_of($2, 'read'),
                           e.status, m.backfill_status || m.tail_status || m.total_rows_copied, m.error_message)
               FROM shard_split_metrics($1) m, shard_entries() e WHERE e.key = $2",
            &[&split.id, &TENANT],
        )?;
        let undone = format!("{version} shard_a shard_a active pendingpending0 ");
        assert_eq!(row.get::<_, String>(0), undone);
        let counters = "SELECT bool_and(status = 'pending' AND rows_copied = 0 AND chunks_ok = 0 AND changes_applied = 0)
                          FROM shard_split_tables($1)";
        assert!(master.query_one(counters, &[&split.id])?.get::<_, bool>(0), "the counters of the tables");
        for table in ["items", "notes"] {
            assert!(self.rows(1, table)?.is_empty(), "rows of {table} are left on the target");
        }
        Ok(())
    }

    fn rows(&self, server: usize, table: &str) -> Result<Rows> {
        let mut client = self.cluster.servers[server].superuser(DATABASE)?;
        let query = format!("SELECT id, val FROM {table} WHERE tenant = $1");
        let rows = client.query(&query, &[&TENANT])?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// Checks that the objects are those from before, and no others.
    fn require_objects(&self, before: &[Vec<String>], when: &str) -> Result<()> {
        for (before, now) in before.iter().zip(&self.all_objects()?) {
            let more: Vec<_> = now.iter().filter(|one| !before.contains(one)).collect();
            let less: Vec<_> = before.iter().filter(|one| !now.contains(one)).collect();
            if !more.is_empty() || !less.is_empty() {
                return Err(format!("{when}: left: {more:?}, gone: {less:?}").into());
            }
        }
        Ok(())
    }

    fn all_objects(&self) -> Result<Vec<Vec<String>>> {
        self.cluster.servers.iter().map(|server| objects(&mut server.superuser(DATABASE)?)).collect()
    }
}

/// Returns every third place, or all of them in long runs.
fn some_of(places: Vec<StartingPoint>) -> Vec<StartingPoint> {
    let (first, step) = if is_long_run() { (0, 1) } else { (2, 3) };
    places.into_iter().skip(first).step_by(step).collect()
}

fn roll_back_from(places: &[StartingPoint]) {
    let fixture = Fixture::new();
    if let Err(error) = fixture.run(places) {
        panic!("{error}\n{}", fixture.cluster.master.log_tail(3_000));
    }
}

#[test]
fn from_every_phase() {
    let points = [
        "backfill_begin",
        "step_snapshot",
        "step_chunk",
        "step_committed",
        "backfill_done",
        "tail_caught_up",
    ];
    let mut places = vec![
        StartingPoint::Phase("planning"),
        StartingPoint::Phase("dual_write"),
        StartingPoint::Phase("cutover_pending"),
    ];
    places.extend(points.map(StartingPoint::Point));
    roll_back_from(&some_of(places));
}

#[test]
#[ignore = "make test-all: points of the installation; make test has from_every_phase"]
fn while_it_is_installed() {
    let points = [
        "install_begin",
        "install_ledger",
        "install_target",
        "install_guarded",
        "install_source",
        "install_trigger",
        "install_done",
    ];
    roll_back_from(&points.map(StartingPoint::Point));
}

/// The operator's call counts up to the transaction that decides.
#[test]
fn from_within_a_cutover() {
    let points = [
        "cutover_begin",
        "cutover_disabled",
        "cutover_locked",
        "cutover_fenced",
        "cutover_applied",
        "cutover_sequences",
    ];
    roll_back_from(&some_of(points.map(StartingPoint::Point).into()));
}

/// After the decision a rollback is not possible.
#[test]
fn not_after_the_decision() {
    let fixture = Fixture::new();
    let mut master = fixture.cluster.superuser().unwrap();
    let mut target = fixture.cluster.servers[1].superuser(DATABASE).unwrap();
    target.batch_execute("DELETE FROM items").unwrap();
    master.batch_execute("SELECT shard_assign('stays', 'shard_a')").unwrap();
    let split = Split::plan(&fixture.cluster, "shard_a", "shard_b", &["stays"]).unwrap();
    split.call("start_dual_write").unwrap();
    split.call("run_backfill").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    for point in ["cutover_decided", "cutover_opened", "cutover_moved"] {
        fixture.cluster.hold(point).unwrap();
        let _ = split.call("cutover");
        split.wait_held(point, LIMIT).unwrap();
        let refused = split.call("rollback").unwrap_err();
        assert_eq!(refused.sqlstate(), Some("55000"), "{point}: {refused}");
    }
    fixture.cluster.fault("").unwrap();
    split.wait("completed", LIMIT).unwrap();
    let rows = "SELECT count(*) FROM items WHERE tenant = 'stays'";
    wait::until("the rows on the target", LIMIT, || {
        let count: i64 = fixture.cluster.servers[1].superuser(DATABASE)?.query_one(rows, &[])?.get(0);
        Ok((count == 50).then_some(()))
    })
    .unwrap();
}

/// A worker of a master that was failed over from lives on. After a rollback has found the target closed,
/// this worker must not open it, because its rows are about to be deleted.
#[test]
fn nobody_opens_a_target_that_a_rollback_has_asked() {
    let cluster = fixture::cluster(&[]);
    let split = fixture::plan(&cluster);
    fixture::to_pending(&split);
    cluster.hold("rollback_capture").unwrap();
    split.call("rollback").unwrap();
    split.wait_held("rollback_capture", LIMIT).unwrap();
    let query = "SELECT generation FROM shardmaster.split_plan WHERE id = $1";
    let now: i64 = split.superuser().unwrap().query_one(query, &[&split.id]).unwrap().get(0);
    let query = "SELECT generation FROM shardmaster_agent.generation WHERE side = 'target'";
    let known = cluster.servers[1].superuser(DATABASE).unwrap().query_one(query, &[]).unwrap();
    assert_eq!(known.get::<_, i64>(0), now, "an earlier worker may still act there");
    cluster.fault("").unwrap();
    split.wait("rolled_back", LIMIT).unwrap();
}
