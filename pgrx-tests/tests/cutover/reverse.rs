//! The reverse split of a split: after the cutover, the changes of clients on the target are copied to the
//! source, and one commit sends the clients back.

use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE};
use shardmaster_tests::env::{at_most, is_long_run};
use shardmaster_tests::fixture::{self, LIMIT, completed, insert, load, outcome, plan, rows, to_pending};
use shardmaster_tests::server::Stop;
use shardmaster_tests::split::Split;
use shardmaster_tests::workload::{Sharding, Workload};
use shardmaster_tests::{standby, wait};
use std::time::Duration;

const ON: &str = "shardmaster.reverse = on";

fn client(cluster: &Cluster, server: usize) -> postgres::Client {
    cluster.servers[server].connect(DATABASE, CLIENT).unwrap()
}

/// Requests the reverse split of a split.
fn reverse<'a>(cluster: &'a Cluster, split: &Split<'_>) -> Split<'a> {
    let query = "SELECT shard_split_reverse($1)";
    Split::of(cluster, cluster.superuser().unwrap().query_one(query, &[&split.id]).unwrap().get(0))
}

fn reversed(split: &Split<'_>) {
    split.wait("reversed", LIMIT).unwrap();
}

/// Makes changes of every kind on a server.
fn change(cluster: &Cluster, server: usize) {
    client(cluster, server)
        .batch_execute(
            "UPDATE items SET val = val || '!' WHERE tenant = 'moves' AND id < 100;
             DELETE FROM items WHERE tenant = 'moves' AND id BETWEEN 500 AND 520;
             UPDATE items SET id = id + 10000, code = code + 10000 WHERE tenant = 'moves' AND id = 400;
             INSERT INTO items (tenant, id, val, code) SELECT 'moves', (SELECT max(id) FROM items) + i, 'new', -(SELECT max(id) FROM items) - i
               FROM generate_series(1, 50) i",
        )
        .unwrap();
}

/// Returns the shard to which the moving key is routed.
fn route(cluster: &Cluster) -> String {
    cluster.superuser().unwrap().query_one("SELECT shard_of('moves')", &[]).unwrap().get(0)
}

/// Returns the objects of splits on all servers.
fn objects(cluster: &Cluster) -> Vec<String> {
    let query = "SELECT format('%s %s', c.relname, c.relkind) FROM pg_class c
                  WHERE c.relnamespace = to_regnamespace('shardmaster_agent')
                 UNION ALL SELECT tgname FROM pg_trigger WHERE tgname LIKE '%shardmaster%'";
    let of = |server: &shardmaster_tests::server::Server| {
        let rows = server.superuser(DATABASE).unwrap().query(query, &[]).unwrap();
        rows.iter().map(|row| row.get(0)).collect::<Vec<String>>()
    };
    cluster.servers.iter().flat_map(of).collect()
}

#[test]
fn what_clients_have_changed_comes_back() {
    let cluster = fixture::cluster(&[ON]);
    let split = completed(&cluster);
    change(&cluster, 1);
    let expected = rows(&cluster, 1);
    let frozen = rows(&cluster, 0);
    // The metrics show what a reverse split would copy before it is requested.
    let told = "SELECT lag_rows, queue_bytes, next_call FROM shard_split_metrics() WHERE reverse_of = $1";
    let told = cluster.superuser().unwrap().query_one(told, &[&split.id]).unwrap();
    assert!(told.get::<_, i64>(0) > 100 && told.get::<_, i64>(1) > 0);
    assert_eq!(told.get::<_, Option<String>>(2), None);
    // It is idle. A pause now would block its work later, so it is refused.
    let pause = "SELECT shard_split_pause(split_id) FROM shard_split_metrics() WHERE reverse_of = $1";
    assert_eq!(
        fixture::state_of(&cluster.superuser().unwrap().query_one(pause, &[&split.id]).unwrap_err()),
        "55000"
    );
    assert_ne!(expected, frozen);
    let back = reverse(&cluster, &split);
    reversed(&split);
    back.wait("completed", LIMIT).unwrap();
    assert_eq!(rows(&cluster, 0), expected);
    assert_eq!(route(&cluster), "shard_a");
    // No rows were copied.
    assert_eq!(back.metric::<i64>("total_rows_copied").unwrap(), 0);
    assert_eq!(outcome(&mut client(&cluster, 0), &insert("moves", 70_000)), "ok");
    assert_eq!(outcome(&mut client(&cluster, 1), &insert("moves", 70_001)), "SM001");
    assert_eq!(outcome(&mut client(&cluster, 0), &insert("stays", 70_002)), "ok");
    // It finishes like every split.
    let expected = rows(&cluster, 0);
    back.finish(LIMIT).unwrap();
    assert!(rows(&cluster, 1).is_empty());
    assert_eq!(rows(&cluster, 0), expected);
    assert_eq!(outcome(&mut client(&cluster, 1), &insert("moves", 70_003)), "SM001");
    fixture::finished(&plan(&cluster));
    assert_eq!(rows(&cluster, 1), expected);
}

/// The keys move there, back, there and back again. Each reverse split has a reverse split of its own.
#[test]
#[ignore = "make test-all: more reverse splits; make test has writers_lose_nothing_there_and_back"]
fn as_often_as_one_likes() {
    let cluster = fixture::cluster(&[ON]);
    let mut split = completed(&cluster);
    let mut ended = Vec::new();
    for round in 0..4 {
        let (from, to) = if round % 2 == 0 { (1, 0) } else { (0, 1) };
        change(&cluster, from);
        let expected = rows(&cluster, from);
        let back = reverse(&cluster, &split);
        reversed(&split);
        assert_eq!(rows(&cluster, to), expected, "round {round}");
        assert_eq!(outcome(&mut client(&cluster, from), &insert("moves", 80_000)), "SM001");
        ended.push(std::mem::replace(&mut split, back));
        split.wait("completed", LIMIT).unwrap();
    }
    split.finish(LIMIT).unwrap();
    assert!(rows(&cluster, 0).is_empty());
    // All of them have one token, and two more had the same source. Dropping the guard of one affects no other.
    for taken_back in ended {
        taken_back.drop_guard().unwrap();
    }
    let found = "SELECT shard_cleanup('shard_a')";
    assert!(cluster.superuser().unwrap().query(found, &[]).unwrap().is_empty());
    assert_eq!(outcome(&mut client(&cluster, 0), &insert("moves", 80_001)), "SM001");
    split.drop_guard().unwrap();
    assert_eq!(outcome(&mut client(&cluster, 0), &insert("moves", 80_002)), "ok");
}

#[test]
fn writers_lose_nothing_there_and_back() {
    let some = "SELECT shard_split_plan('shard_a', 'shard_b', ARRAY(SELECT key FROM shard_entries()
                                          WHERE write_shard = 'shard_a' ORDER BY 1 LIMIT 3))";
    let all = "SELECT shard_split_plan_all('shard_a', 'shard_b', keyspace => 'tenants')";
    let forms = [(Sharding::Directory(vec![0; 8]), some), (Sharding::Range(vec!["t3", "t6"]), all)];
    for (sharding, plan) in forms.into_iter().take(at_most(1)) {
        let cluster = Cluster::servers(2, &["fsync = off", "shardmaster.tail_interval = 20", ON]).unwrap();
        let text = format!("{sharding:?}");
        let mut workload = Workload::prepare(&cluster, load(sharding)).unwrap();
        workload.start();
        workload.wait_for(300, LIMIT).unwrap();
        let mut split = Split::plan_by(&cluster, plan).unwrap();
        split.run(|_| ()).unwrap();
        for _ in 0..2 {
            workload.wait_for(300, LIMIT).unwrap();
            let back = reverse(&cluster, &split);
            reversed(&split);
            split = back;
        }
        workload.wait_for(300, LIMIT).unwrap();
        split.finish(LIMIT).unwrap();
        workload.wait_for(100, LIMIT).unwrap();
        workload.stop().unwrap();
        let report = workload.report(&cluster).unwrap();
        assert!(report.is_clean(), "{text}: {report}");
    }
}

/// The worker ends at each point. Writers are served by one of the sides.
#[test]
fn whatever_becomes_of_its_worker() {
    let points = [
        "install_begin",
        "install_ledger",
        "install_target",
        "install_guarded",
        "install_done",
        "reverse_guarded",
        "reverse_planned",
        "reverse_captured",
        "reverse_left",
        "backfill_begin",
        "step_window",
        "step_durable",
        "step_committed",
        "step_consumed",
        "cutover_disabled",
        "cutover_locked",
        "cutover_fenced",
        "cutover_applied",
        "cutover_decided",
        "cutover_opened",
        "cutover_moved",
    ];
    // Each run tries some of the points. A long run tries each of them alone, and also in the opposite
    // direction. A short run tries those that `faults::injection_points` does not have, and the fence.
    let all = is_long_run();
    let (turns, rounds) = if all { (2, points.len()) } else { (1, 2) };
    let is_tried = |point: &&str| {
        all || point.starts_with("reverse_") || ["cutover_fenced", "cutover_decided"].contains(point)
    };
    let points: Vec<&str> = points.into_iter().filter(is_tried).collect();
    for turn in 0..turns {
        let cluster = fixture::cluster(&[ON]);
        let mut split = completed(&cluster);
        let mut from = 1;
        for round in 0..rounds {
            let fault = |(n, point): (usize, &str)| format!("{point}={}", ["kill", "error"][(n + turn) % 2]);
            let each = points.iter().copied().enumerate().skip(round).step_by(rounds);
            let faults: Vec<String> = each.map(fault).collect();
            change(&cluster, from);
            let expected = rows(&cluster, from);
            cluster.fault(&faults.join(",")).unwrap();
            let back = reverse(&cluster, &split);
            back_whatever_happens(&cluster, &split)
                .map_err(|e| {
                    format!("{faults:?} {e}; {}; {}", back.describe(), back.events().unwrap_or_default())
                })
                .unwrap();
            cluster.fault("").unwrap();
            assert_eq!(rows(&cluster, 1 - from), expected, "{faults:?}");
            let met = "SELECT count(*) FROM shardmaster.fault_fired WHERE fault = ANY ($1)";
            let met: i64 = cluster.superuser().unwrap().query_one(met, &[&faults]).unwrap().get(0);
            assert_eq!(met as usize, faults.len(), "{faults:?}");
            (split, from) = (back, 1 - from);
        }
        split.finish(LIMIT).unwrap();
    }
}

/// Requests an aborted cutover once more.
fn back_whatever_happens(cluster: &Cluster, split: &Split<'_>) -> shardmaster_tests::Result<()> {
    wait::until("the split to be taken back", LIMIT, || {
        if split.wait("reversed", Duration::from_secs(1)).is_ok() {
            return Ok(Some(()));
        }
        // A killed worker takes the master down for a moment.
        let again = |mut client: postgres::Client| {
            client.execute("SELECT shard_split_reverse($1)", &[&split.id]).is_ok()
        };
        let _ = cluster.superuser().is_ok_and(again);
        Ok(None)
    })
}

/// A reverse split that was not requested ends with its split, however that ends.
#[test]
#[ignore = "make test-all: each end of the split; make test has cutover::armed_reverse::one_that_was_forgotten_goes_with_the_next_one"]
fn it_goes_with_its_split() {
    let cluster = fixture::cluster(&[ON]);
    // The split is rolled back.
    let split = plan(&cluster);
    to_pending(&split);
    assert!(!objects(&cluster).is_empty());
    split.call("rollback").unwrap();
    split.wait("rolled_back", LIMIT).unwrap();
    assert_eq!(objects(&cluster), Vec::<String>::new());
    // The split is started again, and finished.
    fixture::finished(&split);
    assert!(rows(&cluster, 0).is_empty());
    let resting =
        "SELECT count(*) FROM shardmaster.split_plan WHERE reverse_of IS NOT NULL AND phase <> 'rolled_back'";
    let mut master = cluster.superuser().unwrap();
    assert_eq!(master.query_one(resting, &[]).unwrap().get::<_, i64>(0), 0);
    let queues = "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace('shardmaster_agent') AND relname LIKE 'queue%'";
    for server in &cluster.servers {
        let count: i64 = server.superuser(DATABASE).unwrap().query_one(queues, &[]).unwrap().get(0);
        assert_eq!(count, 0);
    }
    let error = master.execute("SELECT shard_split_reverse($1)", &[&split.id]).unwrap_err();
    assert_eq!(fixture::state_of(&error), "55000");
}

/// Finish finds its obstacles before it removes anything.
#[test]
#[ignore = "make test-all: a finish that was refused; make test has what_clients_have_changed_comes_back"]
fn a_finish_that_is_refused_can_be_taken_back() {
    let cluster = fixture::cluster(&[ON]);
    let split = completed(&cluster);
    client(&cluster, 1)
        .batch_execute("UPDATE items SET val = 'new' WHERE tenant = 'moves' AND id = 2")
        .unwrap();
    let lose = "DELETE FROM items WHERE tenant = 'moves' AND id BETWEEN 10 AND 19";
    fixture::as_worker(&cluster, &split, 1).batch_execute(lose).unwrap();
    let before = rows(&cluster, 0);
    split.call("finish").unwrap();
    let refused = split.wait("finished", LIMIT).unwrap_err().to_string();
    assert!(refused.contains("5 rows of the moved keys are not on shard"), "{refused}");
    let hint = "SELECT error_hint FROM shardmaster.split_plan WHERE id = $1";
    let hint: String = cluster.superuser().unwrap().query_one(hint, &[&split.id]).unwrap().get(0);
    assert!(hint.contains(&format!("shard_split_reverse({})", split.id)), "{hint}");
    assert_eq!(rows(&cluster, 0), before, "nothing was deleted");
    let back = reverse(&cluster, &split);
    reversed(&split);
    back.finish(LIMIT).unwrap();
    assert_eq!(route(&cluster), "shard_a");
    let now = rows(&cluster, 0);
    assert_eq!(now.len(), before.len(), "what the target had lost never left");
    assert_eq!(now[&2], "new 2");
}

/// A finish can be reversed until it begins to delete.
#[test]
#[ignore = "make test-all: a finish that is under way; make test has what_clients_have_changed_comes_back"]
fn a_finish_that_compares_is_taken_back_and_one_that_deletes_is_not() {
    let cluster = fixture::cluster(&[ON]);
    let split = completed(&cluster);
    let mut holder = cluster.servers[1].superuser(DATABASE).unwrap();
    holder.batch_execute("BEGIN; LOCK TABLE items").unwrap();
    split.call("finish").unwrap();
    wait::until("finish to wait for the table", LIMIT, || {
        let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'items'::regclass";
        Ok((holder.query_one(waiting, &[])?.get::<_, i64>(0) > 0).then_some(()))
    })
    .unwrap();
    let back = reverse(&cluster, &split);
    holder.batch_execute("ROLLBACK").unwrap();
    reversed(&split);
    let there = reverse(&cluster, &back);
    reversed(&back);
    cluster.hold("finish_ready").unwrap();
    there.call("finish").unwrap();
    there.wait_held("finish_ready", LIMIT).unwrap();
    let query = "SELECT shard_split_reverse($1)";
    let refused = cluster.superuser().unwrap().query_one(query, &[&there.id]).unwrap_err();
    let hint = refused.as_db_error().and_then(|error| error.hint()).unwrap_or_default();
    assert!(hint.contains("The split is being finished"), "{refused:?}");
    cluster.fault("").unwrap();
    there.finish(LIMIT).unwrap();
    assert!(rows(&cluster, 0).is_empty());
}

/// If the reverse split is aborted before it decides, it leaves the split unchanged, and the source loses no row.
#[test]
#[ignore = "make test-all: one that is given up; make test has whatever_becomes_of_its_worker"]
fn given_up_it_leaves_the_split_to_be_finished() {
    for point in ["install_guarded", "step_committed", "cutover_fenced"] {
        let cluster = fixture::cluster(&[ON]);
        let split = completed(&cluster);
        change(&cluster, 1);
        cluster.hold(point).unwrap();
        let back = reverse(&cluster, &split);
        back.wait_held(point, LIMIT).unwrap();
        let error = split.call("finish").unwrap_err();
        assert!(error.to_string().contains("is being taken back by split"), "{error}");
        let error = split.drop_guard().unwrap_err();
        assert!(error.to_string().contains("is being taken back by split"), "{error}");
        back.call("rollback").unwrap();
        cluster.fault("").unwrap();
        back.wait("rolled_back", LIMIT).unwrap();
        let finish = cluster.superuser().unwrap().query_one("SELECT shard_split_finish($1)", &[&back.id]);
        let error = finish.unwrap_err();
        let hint = error.as_db_error().and_then(|error| error.hint()).unwrap_or_default();
        assert!(hint.contains(&format!("shard_split_finish({}) ends both", split.id)), "{error:?}");
        assert!(!rows(&cluster, 0).is_empty());
        assert_eq!(route(&cluster), "shard_b");
        let update = "UPDATE items SET val = 'again' WHERE tenant = 'moves' AND id = 2";
        assert_eq!(outcome(&mut client(&cluster, 1), update), "ok", "{point}");
        assert_eq!(outcome(&mut client(&cluster, 0), update), "SM001", "{point}");
        let expected = rows(&cluster, 1);
        split.finish(LIMIT).unwrap();
        assert!(rows(&cluster, 0).is_empty());
        assert_eq!(rows(&cluster, 1), expected);
    }
}

/// The source has failed over to a standby that was behind. Its rows are not those with which the target
/// began, so all of them are copied.
#[test]
#[ignore = "make test-all: a reverse split; make test has masters::restore_older::a_source_whose_disk_was_set_back_is_copied_again_by_the_next_worker"]
fn a_source_that_was_set_back_is_copied_again() {
    let mut cluster = fixture::cluster(&[ON, "fsync = on", "shardmaster.watch_interval = 100"]);
    let replica = standby::add(&cluster, 0).unwrap();
    let id = {
        let split = plan(&cluster);
        to_pending(&split);
        split.id
    };
    standby::cut_off(&cluster, 0, &replica).unwrap();
    client(&cluster, 0)
        .batch_execute("UPDATE items SET val = 'late' WHERE tenant = 'moves' AND id < 300")
        .unwrap();
    let split = Split::of(&cluster, id);
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    standby::fail_over(&mut cluster, 0, replica).unwrap();
    let split = Split::of(&cluster, id);
    split.wait_for_event("state restored", LIMIT).unwrap();
    split.wait("completed", LIMIT).unwrap();
    change(&cluster, 1);
    let expected = rows(&cluster, 1);
    assert_ne!(rows(&cluster, 0), expected);
    let back = reverse(&cluster, &split);
    let error = back.failure(LIMIT).unwrap();
    assert!(error.contains("were not compared with them since the cutover"), "{error}");
    let query = "SELECT shard_split_reverse($1, copy_again => true)";
    cluster.superuser().unwrap().execute(query, &[&split.id]).unwrap();
    reversed(&split);
    assert_eq!(rows(&cluster, 0), expected);
    assert!(back.events().unwrap().contains("was restored since the cutover"), "{}", back.events().unwrap());
}

/// A stale client has written to the source while it had lost its fence. No other shard has that row.
#[test]
fn what_the_source_took_meanwhile_stops_it() {
    let cluster = fixture::cluster(&[ON, "shardmaster.watch_interval = 3600000"]);
    let split = completed(&cluster);
    let forget = "UPDATE shardmaster_agent.side SET state = 'capture', version = NULL WHERE side = 'source' AND split_id = $1";
    cluster.servers[0].superuser(DATABASE).unwrap().execute(forget, &[&split.id]).unwrap();
    assert_eq!(outcome(&mut client(&cluster, 0), &insert("moves", 90_000)), "ok");
    let back = reverse(&cluster, &split);
    let text = back.failure(LIMIT).unwrap();
    assert!(text.contains("accepted 1 changes after the cutover"), "{text}");
    let found = "SELECT 1 FROM items WHERE id = 90000";
    assert_eq!(cluster.servers[0].superuser(DATABASE).unwrap().query(found, &[]).unwrap().len(), 1);
    back.call("rollback").unwrap();
    back.wait("rolled_back", LIMIT).unwrap();
    assert_eq!(cluster.servers[0].superuser(DATABASE).unwrap().query(found, &[]).unwrap().len(), 1);
    assert_eq!(outcome(&mut client(&cluster, 1), &insert("moves", 90_001)), "ok");
}

/// A master that was restored to a time before the reverse split decided adopts the decision from the shards.
#[test]
#[ignore = "make test-all: a reverse split; make test has masters::failover::a_decision_that_the_master_lost_is_adopted"]
fn a_decision_that_the_master_has_lost_is_adopted() {
    let mut cluster = fixture::cluster(&[ON, "fsync = on", "shardmaster.watch_interval = 100"]);
    let split = completed(&cluster);
    let id = split.id;
    change(&cluster, 1);
    let expected = rows(&cluster, 1);
    cluster.master.copy_disk().unwrap();
    let back = reverse(&cluster, &Split::of(&cluster, id)).id;
    reversed(&Split::of(&cluster, id));
    cluster.master.set_disk_back(Stop::Fast).unwrap();
    cluster.master.run().unwrap();
    let split = Split::of(&cluster, id);
    wait::until("the reverse split to be adopted", LIMIT, || Ok(split.wait("reversed", LIMIT).ok())).unwrap();
    Split::of(&cluster, back).wait("completed", LIMIT).unwrap();
    assert_eq!(route(&cluster), "shard_a");
    assert_eq!(rows(&cluster, 0), expected);
}

/// A client that waits for the finish, to drop what is on the old side, is told that the rows are there again.
#[test]
#[ignore = "make test-all: what is told of it; make test has what_clients_have_changed_comes_back"]
fn a_split_that_was_taken_back_does_not_count_as_finished() {
    let cluster = fixture::cluster(&[ON]);
    let split = completed(&cluster);
    let back = reverse(&cluster, &split);
    reversed(&split);
    for _ in 0..2 {
        for phase in ["completed", "finished"] {
            let error = split.wait(phase, LIMIT).unwrap_err().to_string();
            assert!(
                error.contains(&format!("split {} was taken back by split {}", split.id, back.id)),
                "{error}"
            );
        }
        let error = split.run(|_| ()).unwrap_err().to_string();
        assert!(error.contains("was taken back by split"), "{error}");
        assert_eq!(split.wait("tailing", LIMIT).unwrap(), "finished");
        reversed(&split);
        back.finish(LIMIT).unwrap();
    }
}

/// A column that only the source has dropped remains on the target, and a type that is wider on the target
/// holds more than the source can. Neither can be copied in the other direction.
#[test]
#[ignore = "make test-all: what is told before it; make test has cutover::reverse_disrupted::a_change_after_the_cutover_goes_back_with_the_rows"]
fn a_change_that_cannot_go_back_is_told_before_the_cutover() {
    for (side, change, why) in [
        (0, "ALTER TABLE items DROP COLUMN more", "column \"more\" is missing on the target"),
        (
            1,
            "ALTER TABLE items ALTER COLUMN more TYPE text",
            "column \"more\" is text and character varying(9)",
        ),
    ] {
        let cluster = fixture::cluster(&[ON]);
        fixture::by_superusers(&cluster, "ALTER TABLE items ADD COLUMN more varchar(9)");
        let split = plan(&cluster);
        to_pending(&split);
        fixture::by_owner(&cluster, side, change);
        split.wait_for_event("both sides are alike: these continue", LIMIT).unwrap();
        split
            .wait_for_event(&format!("as its tables are now, it cannot be taken back: items: {why}"), LIMIT)
            .unwrap();
        // Once the other side has changed in the same way, it can.
        fixture::by_owner(&cluster, 1 - side, change);
        split.wait_settled(LIMIT).unwrap();
        split.call("cutover").unwrap();
        split.wait("completed", LIMIT).unwrap();
        change_and_go_back(&cluster, &split);
    }
}

fn change_and_go_back(cluster: &Cluster, split: &Split<'_>) {
    change(cluster, 1);
    let expected = rows(cluster, 1);
    reverse(cluster, split);
    reversed(split);
    assert_eq!(rows(cluster, 0), expected);
}
