//! Rows on the wrong shard are moved while others write to them without pause. The call ends, and nothing is lost.

use postgres::Client;
use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::fixture::{LIMIT, by_superuser, by_superusers, state_of};
use shardmaster_tests::repair::{MOVE, counts, dba, in_background, number, stage};
use shardmaster_tests::wait;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const FAMILY: i32 = 2000;

/// Inserts parents with five children each, of the key that moves and of another one.
fn family(cluster: &Cluster, more: &str) {
    by_superusers(
        cluster,
        &format!(
            "CREATE TABLE parent (tenant text, id int PRIMARY KEY, val text);
             CREATE TABLE child (tenant text, id int PRIMARY KEY, parent int REFERENCES parent {more}, val text);
             CREATE INDEX ON child (parent);
             GRANT SELECT, INSERT, UPDATE, DELETE ON parent, child TO mender, app"
        ),
    );
    by_superuser(
        cluster,
        0,
        &format!(
            "INSERT INTO parent SELECT t, i + n, 'v' FROM generate_series(1, {FAMILY}) i, (VALUES ('moves', 0), ('stays', 5000000)) v (t, n);
             INSERT INTO child SELECT t, i + n, 1 + i % {FAMILY} + n, 'v' FROM generate_series(1, 5 * {FAMILY}) i, (VALUES ('moves', 0), ('stays', 5000000)) v (t, n)"
        ),
    );
    cluster
        .superuser()
        .unwrap()
        .batch_execute("SELECT shard_table_add('parent', 'tenant'), shard_table_add('child', 'tenant')")
        .unwrap();
}

/// Rows by table and number, according to the answers that clients got.
type KnownRows = BTreeMap<(&'static str, i32), String>;

fn known_at_first() -> KnownRows {
    let parents = (1..=FAMILY).map(|id| (("parent", id), "v".to_owned()));
    let children = (1..=5 * FAMILY).map(|id| (("child", id), "v".to_owned()));
    parents.chain(children).collect()
}

fn found(cluster: &Cluster, server: usize, tenant: &str) -> KnownRows {
    let mut client = cluster.servers[server].superuser(DATABASE).unwrap();
    let mut found = KnownRows::new();
    for table in ["parent", "child", "items"] {
        let query = format!("SELECT id, val FROM {table} WHERE tenant = $1");
        for row in client.query(&query, &[&tenant]).unwrap() {
            assert_eq!(found.insert((table, row.get(0)), row.get(1)), None);
        }
    }
    found
}

/// Changes rows of the key that moves without pause until it is stopped. Each writer has its own rows.
struct Writer<'a> {
    client: Client,
    number: i32,
    known: &'a Mutex<KnownRows>,
}

impl Writer<'_> {
    /// Returns whether it was done. A row that refers to a deleted row is refused.
    fn does(&mut self, statements: &str) -> bool {
        match self.client.batch_execute(statements) {
            Ok(()) => true,
            Err(error) => {
                assert!(["23503", "40P01"].contains(&state_of(&error)), "{error}");
                false
            }
        }
    }

    fn knows(&self, table: &'static str, id: i32, val: &str) {
        self.known.lock().unwrap().insert((table, id), val.to_owned());
    }

    fn turn(&mut self, turn: i32) {
        let new = 1_000_000 * self.number + turn;
        let old = 2 * (turn % (FAMILY / 2)) + self.number % 2 + 1;
        if self.does(&format!(
            "BEGIN; INSERT INTO parent VALUES ('moves', {new}, 'p'); INSERT INTO child VALUES ('moves', {new}, {new}, 'c');
             INSERT INTO items VALUES ('moves', {new}, 'i'); COMMIT"
        )) {
            self.knows("parent", new, "p");
            self.knows("child", new, "c");
            self.knows("items", new, "i");
        } else {
            self.client.batch_execute("ROLLBACK").unwrap();
        }
        let other = new + 500_000;
        if self.does(&format!("INSERT INTO child VALUES ('moves', {other}, {old}, 'o')")) {
            self.knows("child", other, "o");
        }
        let val = format!("w{new}");
        let update = format!("UPDATE child SET val = '{val}' WHERE tenant = 'moves' AND id = {old}");
        if self.client.execute(&update, &[]).unwrap() == 1 {
            self.knows("child", old, &val);
        }
        let gone = old + 2 * FAMILY;
        let delete = format!("DELETE FROM child WHERE tenant = 'moves' AND id = {gone}");
        if self.client.execute(&delete, &[]).unwrap() == 1 {
            self.known.lock().unwrap().remove(&("child", gone));
        }
    }
}

#[test]
fn a_family_is_moved_however_often_others_come_between() {
    let cluster = stage(0);
    family(&cluster, "");
    let others = found(&cluster, 0, "stays");
    let (stop, known) = (AtomicBool::new(false), Mutex::new(known_at_first()));
    let turns = thread::scope(|scope| {
        let writers: Vec<_> = (1..=2)
            .map(|number| {
                let client = cluster.servers[0].connect(DATABASE, "app").unwrap();
                let (stop, known) = (&stop, &known);
                scope.spawn(move || {
                    let mut writer = Writer { client, number, known };
                    let mut turn = 0;
                    while !stop.load(Ordering::Relaxed) {
                        writer.turn(turn);
                        turn += 1;
                        wait::rest();
                    }
                    turn
                })
            })
            .collect();
        wait::until("the writers to write", LIMIT, || {
            Ok((known.lock().unwrap().contains_key(&("items", 2_000_010))).then_some(()))
        })
        .unwrap();
        // One call is enough.
        let outcome = dba(&cluster).batch_execute(MOVE);
        stop.store(true, Ordering::Relaxed);
        let turns = writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<_>>();
        outcome.unwrap();
        turns
    });
    assert!(turns.iter().all(|turns| *turns > 10), "{turns:?}");
    // Later rows are moved as well. Then there is everything that clients were told of, and nothing else.
    dba(&cluster).batch_execute(MOVE).unwrap();
    assert_eq!(found(&cluster, 0, "moves"), KnownRows::new());
    let (there, known) = (found(&cluster, 1, "moves"), known.into_inner().unwrap());
    let differ: Vec<_> = there.iter().filter(|(row, val)| known.get(*row) != Some(*val)).collect();
    assert!(differ.is_empty(), "{differ:?}");
    let lost: Vec<_> = known.keys().filter(|row| !there.contains_key(*row)).collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert_eq!(found(&cluster, 0, "stays"), others);
}

/// Each time another row refers to one that is about to be deleted. In the end such a row has to wait.
#[test]
fn who_comes_between_each_time_is_kept_out_in_the_end() {
    let cluster = stage(10);
    family(&cluster, "ON DELETE CASCADE");
    by_superuser(
        &cluster,
        0,
        "CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS
            $$BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN old; END$$;
         CREATE TRIGGER gate BEFORE DELETE ON child FOR EACH ROW WHEN (old.id = 1) EXECUTE FUNCTION gate()",
    );
    let gate = || {
        let mut gate = cluster.servers[0].superuser(DATABASE).unwrap();
        thread::spawn(move || {
            gate.batch_execute("SELECT pg_advisory_lock(7)").unwrap();
            gate
        })
    };
    let mut here = cluster.servers[0].superuser(DATABASE).unwrap();
    let mut held = gate().join().unwrap();
    let (said, heard) = std::sync::mpsc::channel();
    let mut config = cluster.master.config(DATABASE, "dba");
    config.notice_callback(move |notice| drop(said.send(notice.message().to_owned())));
    let mut caller = config.connect(postgres::NoTls).unwrap();
    let call = thread::spawn(move || {
        caller.batch_execute(
            "CALL shard_misplaced_move('shard_a', '{moves}', tables => '{parent,child}', fire_triggers => true)",
        )
    });
    let deletes =
        "SELECT count(*) > 0 FROM pg_stat_activity WHERE usename = 'mender' AND wait_event = 'advisory'";
    let queues =
        "SELECT count(*) > 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND NOT granted";
    let mut writer = cluster.servers[0].connect(DATABASE, "app").unwrap();
    for turn in 0..3 {
        wait::until_true(&mut here, "the deletion to wait", LIMIT, deletes).unwrap();
        let next = gate();
        wait::until_true(&mut here, "the next gate to wait", LIMIT, queues).unwrap();
        writer
            .execute(&format!("INSERT INTO child VALUES ('moves', {}, 5, 'new')", 900_000 + turn), &[])
            .unwrap();
        held.batch_execute("SELECT pg_advisory_unlock(7)").unwrap();
        held = next.join().unwrap();
    }
    wait::until_true(&mut here, "the deletion to wait", LIMIT, deletes).unwrap();
    let late =
        thread::spawn(move || writer.execute("INSERT INTO child VALUES ('moves', 900003, 5, 'late')", &[]));
    let waits =
        "SELECT count(*) > 0 FROM pg_stat_activity WHERE usename = 'app' AND wait_event_type = 'Lock'";
    wait::until_true(&mut here, "the writer to wait", LIMIT, waits).unwrap();
    drop(held);
    call.join().unwrap().unwrap();
    // The row to which it refers is on the other shard.
    assert_eq!(state_of(&late.join().unwrap().unwrap_err()), "23503");
    let moved = "SELECT count(*) FROM child WHERE tenant = 'moves'";
    assert_eq!([0, 1].map(|server| number(&cluster, server, moved)), [0, i64::from(5 * FAMILY) + 3]);
    let notices: Vec<String> = heard.try_iter().collect();
    let told = notices
        .iter()
        .filter(|notice| notice.starts_with("nobody could write to parent, child on shard \"shard_a\" for "));
    assert_eq!(told.count(), 1, "{notices:?}");
}

/// A listed place that has another row by now is left alone, and a row that has another place is found by the
/// next list.
#[test]
fn rows_that_change_their_places_are_moved_as_well() {
    let cluster = stage(5000);
    by_superusers(&cluster, "ALTER TABLE items SET (autovacuum_enabled = off)");
    // The call is held in the first batch, when all places are listed.
    by_superuser(
        &cluster,
        0,
        "CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS
            $$BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN old; END$$;
         CREATE TRIGGER gate BEFORE DELETE ON items FOR EACH ROW WHEN (old.tenant = 'moves' AND old.id = 1) EXECUTE FUNCTION gate()",
    );
    let mut gate = cluster.servers[0].superuser(DATABASE).unwrap();
    gate.batch_execute("SELECT pg_advisory_lock(7)").unwrap();
    let call =
        in_background(&cluster, "CALL shard_misplaced_move('shard_a', '{moves}', fire_triggers => true)");
    let mut here = cluster.servers[0].superuser(DATABASE).unwrap();
    let waits =
        "SELECT count(*) > 0 FROM pg_stat_activity WHERE usename = 'mender' AND wait_event = 'advisory'";
    wait::until_true(&mut here, "the deletion to wait", LIMIT, waits).unwrap();
    by_superuser(
        &cluster,
        0,
        "UPDATE items SET val = 'new' WHERE tenant = 'moves' AND id > 4000;
         DELETE FROM items WHERE tenant = 'stays' AND id > 2500",
    );
    drop(gate);
    assert_eq!(call.join().unwrap(), None);
    assert_eq!(counts(&cluster), [0, 5000, 2500, 0]);
    assert_eq!(number(&cluster, 1, "SELECT count(*) FROM items WHERE val = 'new'"), 1000);
}
