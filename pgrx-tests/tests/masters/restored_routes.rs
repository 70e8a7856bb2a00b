//! A master that was restored to a time before its shards moved keys. No write is routed to where the rows
//! were, until the master has adopted what the shards know.

use postgres::{Client, NoTls};
use shardmaster_tests::backups::{Disk, Dump};
use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE, OWNER};
use shardmaster_tests::env::at_most;
use shardmaster_tests::fixture::{
    LIMIT, by_owner, client, cluster, completed, finished, insert, outcome, plan, state_of, to_pending,
};
use shardmaster_tests::server::Stop;
use shardmaster_tests::split::Split;
use shardmaster_tests::{standby, wait};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

fn text(master: &mut Client, query: &str) -> String {
    master.query_one(query, &[]).unwrap().get::<_, Option<String>>(0).unwrap_or_default()
}

/// Returns SQLSTATE, message and hint of a refused statement.
fn refused(master: &mut Client, statement: &str) -> (String, String) {
    let error = master.simple_query(statement).expect_err(statement);
    let said = error.as_db_error().map(|e| format!("{} {}", e.message(), e.hint().unwrap_or_default()));
    (state_of(&error).to_owned(), said.unwrap_or_default())
}

/// Opens a session of a master that has asked its shards.
fn asked(cluster: &Cluster) -> Client {
    let mut master = cluster.superuser().unwrap();
    let is_refused = "SELECT EXISTS (SELECT FROM shardmaster.lost_decision)";
    wait::until_true(&mut master, "the master to have asked its shards", LIMIT, is_refused).unwrap();
    master
}

/// Returns the result of shard_adopt(), one line for each row.
fn adopt(master: &mut Client, arguments: &str) -> String {
    let query = format!(
        "SELECT string_agg(concat_ws(' ', keyspace, key, coalesce(routed_to, '-'), coalesce(moved_to, '-'), action), E'\n')
           FROM shard_adopt({arguments})"
    );
    text(master, &query)
}

const WRITE: &str = "SELECT shard_of('moves')";

/// Checks that everything is refused, and then adopted.
fn refuses_and_adopts(cluster: &Cluster) {
    let mut master = asked(cluster);
    for statement in [
        WRITE,
        "SELECT * FROM shard_route('stays')",
        "SELECT shard_assign('new', 'shard_a')",
        "SELECT shard_unassign('stays')",
        "SELECT shard_assign_many('{new}', 'shard_a')",
        "SELECT shard_place_tenant('new')",
        "SELECT shard_routing_rollback(0)",
        "SELECT shard_split_plan('shard_a', 'shard_b', '{stays}')",
        "SELECT shard_split_plan_all('shard_a', 'shard_b')",
        "CALL shard_misplaced_move('shard_a', '{stays}')",
        "SELECT shard_gateway_config('nginx')",
    ] {
        let (state, said) = refused(&mut master, statement);
        assert_eq!(state, "55000", "{statement}: {said}");
        assert!(said.contains("shard_adopt(dry_run => true)"), "{statement}: {said}");
    }
    assert_eq!(text(&mut master, "SELECT shard_of('moves', 'read')"), "shard_a");
    let status =
        "SELECT string_agg(value, '; ') FROM shard_status() WHERE NOT ok AND item LIKE 'routing of%'";
    assert!(text(&mut master, status).contains("shard_adopt"), "{}", text(&mut master, status));
    let check = "SELECT detail FROM shard_check('shard_b') WHERE NOT ok AND item = 'decisions'";
    assert!(text(&mut master, check).contains("from shard \"shard_a\" to \"shard_b\""));
    let reserved = "SELECT last_value::text FROM shardmaster.shard_reservation_id_seq";
    let reserved: i64 = text(&mut master, reserved).parse().unwrap();
    let before = text(&mut master, "SELECT shard_routing_version()::text");
    let shown = adopt(&mut master, "dry_run => true");
    assert!(shown.contains("default moves shard_a shard_b is to be routed there"), "{shown}");
    assert_eq!(refused(&mut master, WRITE).0, "55000");
    let done = adopt(&mut master, "");
    assert!(done.contains("default moves shard_a shard_b is routed there now"), "{done}");
    assert_eq!(text(&mut master, WRITE), "shard_b");
    assert_ne!(text(&mut master, "SELECT shard_routing_version()::text"), before);
    assert_eq!(adopt(&mut master, ""), "");
    // Somebody has the number of a reservation that this master has lost.
    let now = "SELECT nextval('shardmaster.shard_reservation_id_seq')::text";
    assert!(text(&mut master, now).parse::<i64>().unwrap() > reserved + 999_999);
    let wrong = "SELECT count(*)::text FROM shard_status() WHERE NOT ok AND item ~ 'routing of|decisions of'";
    assert_eq!(text(&mut master, wrong), "0");
}

/// The master is restored from its dump repeatedly: while the shards still have the split, and when only the
/// note is left.
#[test]
fn a_key_that_moved_since_the_dump_is_not_written_before_it_is_adopted() {
    let cluster = cluster(&[]);
    let dump = Dump::of(&cluster, "before").unwrap();
    completed(&cluster);
    for _ in (0..2).take(at_most(1)) {
        dump.restore(&cluster).unwrap();
        refuses_and_adopts(&cluster);
    }
    assert_eq!(outcome(&mut client(&cluster), &insert("moves", 9001)), "SM001");
    let mut master = cluster.superuser().unwrap();
    for shard in ["shard_a", "shard_b"] {
        master.query("SELECT * FROM shard_cleanup($1)", &[&shard]).unwrap();
    }
    let left = "SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class
                 WHERE relnamespace = to_regnamespace('shardmaster_agent') AND relkind = 'r'";
    for server in &cluster.servers {
        assert_eq!(text(&mut server.superuser(DATABASE).unwrap(), left), "decision master");
    }
    drop(master);
    dump.restore(&cluster).unwrap();
    refuses_and_adopts(&cluster);
    // It continues as the master that it has replaced.
    let next = Split::plan(&cluster, "shard_a", "shard_b", &["stays"]).unwrap();
    finished(&next);
    let mut master = cluster.superuser().unwrap();
    assert_eq!(text(&mut master, "SELECT shard_of('stays')"), "shard_b");
}

/// The disk of the master is restored like a point-in-time recovery does. It is the master that the shards
/// know, and yet it has lost commits. A shard that is away does not block others.
#[test]
fn a_master_whose_disk_was_set_back_asks_its_shards() {
    let mut cluster = cluster(&[]);
    let disk = Disk::of(&cluster).unwrap();
    let split = plan(&cluster);
    finished(&split);
    split.drop_guard().unwrap();
    cluster.servers[0].stop(Stop::Immediate).unwrap();
    let clients =
        [WRITE, "SELECT shard_assign('new', 'shard_a')::text"].map(|asks| Clients::begin(&cluster, asks));
    disk.restore(&mut cluster).unwrap();
    let mut master = asked(&cluster);
    // This also holds right after its start.
    for told in clients.map(Clients::end) {
        assert_eq!(told, BTreeSet::from(["55000".to_owned()]));
    }
    let silent =
        "SELECT count(*) = 1 FROM shard_status() WHERE NOT ok AND item = 'decisions of shard \"shard_a\"'";
    wait::until_true(&mut master, "the shard that is away to be named", LIMIT, silent).unwrap();
    assert_eq!(refused(&mut master, WRITE).0, "55000");
    let done = adopt(&mut master, "");
    assert!(done.contains("not asked: "), "{done}");
    assert!(done.contains("default moves shard_a shard_b is routed there now"), "{done}");
    assert_eq!(text(&mut master, WRITE), "shard_b");
    assert_eq!(text(&mut master, "SELECT shard_of('stays')"), "shard_a");
    cluster.servers[0].run().unwrap();
    let heard = "SELECT count(*) = 0 FROM shard_status() WHERE NOT ok AND item ~ 'routing of|decisions of'";
    let soon = Duration::from_secs(10);
    wait::until_true(&mut master, "the shard that is back to be asked", soon, heard).unwrap();
    // An ordinary start makes nobody wait.
    drop(master);
    cluster.master.stop(Stop::Fast).unwrap();
    cluster.master.run().unwrap();
    let began = Instant::now();
    assert_eq!(text(&mut cluster.superuser().unwrap(), WRITE), "shard_b");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    eprintln!("routed {:?} after an ordinary start", began.elapsed());
}

/// Sessions that run the same query repeatedly, each in a new session. They return the answers, or the SQLSTATEs.
struct Clients {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<BTreeSet<String>>,
}

impl Clients {
    fn begin(cluster: &Cluster, statement: &'static str) -> Clients {
        let (config, ends) = (cluster.master.config(DATABASE, "postgres"), Arc::new(AtomicBool::new(false)));
        let ended = Arc::clone(&ends);
        let asks = move || {
            let mut told = BTreeSet::new();
            // The answers of the old master do not count.
            let mut was_down = false;
            while !ended.load(Ordering::Relaxed) {
                match config.connect(NoTls) {
                    Err(_) => was_down = true,
                    Ok(mut client) if was_down => {
                        told.insert(match client.query_one(statement, &[]) {
                            Ok(row) => row.get(0),
                            Err(error) => state_of(&error).to_owned(),
                        });
                    }
                    Ok(_) => {}
                }
            }
            told
        };
        Clients { ends, thread: std::thread::spawn(asks) }
    }

    fn end(self) -> BTreeSet<String> {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Only the old shard's note tells of the move. The new shard may have moved the keys on. Until it was asked,
/// or is disabled, no write is routed to either.
#[test]
#[ignore = "make test-all: a shard that was not asked; make test has masters::restored_history::a_target_that_knows_nothing_of_the_move_gets_no_writers"]
fn keys_whose_new_shard_was_not_asked_are_written_nowhere() {
    let mut cluster = cluster(&[]);
    let disk = Disk::of(&cluster).unwrap();
    let split = plan(&cluster);
    finished(&split);
    split.drop_guard().unwrap();
    cluster.servers[1].stop(Stop::Immediate).unwrap();
    disk.restore(&mut cluster).unwrap();
    let mut master = asked(&cluster);
    for arguments in ["dry_run => true", "", "'shard_a'"] {
        let said = adopt(&mut master, arguments);
        assert!(said.contains("shard \"shard_b\" may have moved them on, and was not asked"), "{said}");
        assert_eq!(refused(&mut master, WRITE).0, "55000", "{arguments}");
    }
    master.batch_execute("SELECT shard_set_status('shard_b', 'disabled')").unwrap();
    let done = adopt(&mut master, "");
    assert!(
        done.contains(
            "default moves shard_a shard_b is routed there now, and shard \"shard_b\" knows nothing"
        ),
        "{done}"
    );
    let (state, said) = refused(&mut master, WRITE);
    assert!(state == "55000" && said.contains("shard_b"), "{state} {said}");
    assert_eq!(text(&mut master, "SELECT shard_of('stays')"), "shard_a");
    cluster.servers[1].run().unwrap();
    master.batch_execute("SELECT shard_set_status('shard_b', 'active')").unwrap();
    assert_eq!(text(&mut master, WRITE), "shard_b");
    let known = "SELECT count(*) = 2 FROM shardmaster.shard_asked WHERE run IS NOT NULL";
    wait::until_true(&mut master, "the shard that is active again to be asked", LIMIT, known).unwrap();
}

/// A standby of the master has lost several decisions. A key that went away and came back is where the last
/// decision says.
#[test]
#[ignore = "make test-all: a promoted standby; make test has a_master_whose_disk_was_set_back_asks_its_shards"]
fn a_promoted_standby_takes_the_last_of_several_decisions() {
    let mut cluster = cluster(&[]);
    let standby = standby::start(&cluster.master).unwrap();
    standby::separate(&cluster.master, &standby).unwrap();
    finished(&plan(&cluster));
    finished(&Split::plan(&cluster, "shard_b", "shard_a", &["moves"]).unwrap());
    finished(&Split::plan(&cluster, "shard_a", "shard_b", &["stays"]).unwrap());
    // The standby does not ask the shards while it follows.
    assert_eq!(text(&mut standby.superuser(DATABASE).unwrap(), WRITE), "shard_a");
    cluster.master.stop(Stop::Kill).unwrap();
    standby.promote().unwrap();
    cluster.master = standby;
    let mut master = asked(&cluster);
    assert_eq!(refused(&mut master, WRITE).0, "55000");
    let done = adopt(&mut master, "");
    assert!(done.contains("default moves shard_a shard_a is already routed there"), "{done}");
    assert!(done.contains("default stays shard_a shard_b is routed there now"), "{done}");
    assert_eq!(text(&mut master, WRITE), "shard_a");
    assert_eq!(text(&mut master, "SELECT shard_of('stays')"), "shard_b");
    let version = "SELECT (shard_routing_version() > 4)::text";
    assert_eq!(text(&mut master, version), "true");
}

/// The dump has the plan and not its decision. The split's own worker adopts the decision, by what the shards
/// still have, and by the note alone.
#[test]
#[ignore = "make test-all: a split that is known; make test has masters::failover::a_decision_that_the_master_lost_is_adopted"]
fn a_split_that_the_dump_has_takes_its_own_decision_over() {
    for is_over in [false, true] {
        let cluster = cluster(&[]);
        let split = plan(&cluster);
        to_pending(&split);
        let dump = Dump::of(&cluster, "pending").unwrap();
        split.call("cutover").unwrap();
        split.wait_told(LIMIT).unwrap();
        if is_over {
            split.finish(LIMIT).unwrap();
            split.drop_guard().unwrap();
        }
        let id = split.id;
        dump.restore(&cluster).unwrap();
        let mut master = asked(&cluster);
        assert_eq!(refused(&mut master, WRITE).0, "55000");
        let done = adopt(&mut master, "");
        assert!(done.contains(&format!("SELECT shard_split_resume({id})")), "{done}");
        assert_eq!(refused(&mut master, WRITE).0, "55000");
        master.execute("SELECT shard_split_resume($1)", &[&id]).unwrap();
        let split = Split::of(&cluster, id);
        if is_over {
            // A note without its side shows that the rows have been deleted there.
            split.wait_for_event("that this master had lost", LIMIT).unwrap();
        }
        split.wait(if is_over { "finished" } else { "completed" }, LIMIT).unwrap();
        assert_eq!(text(&mut master, WRITE), "shard_b");
    }
}

/// A shard that invents decisions blocks writers of a keyspace until an operator looks at it. The master
/// adopts none of its keys and numbers that it cannot have assigned, and ignores the shard once it is
/// disabled.
#[test]
fn a_shard_that_makes_decisions_up_uses_up_no_version() {
    let cluster = cluster(&[]);
    finished(&plan(&cluster));
    let lie = "UPDATE shardmaster_agent.decision SET token = 'lie', version = 9223372036854775806";
    cluster.servers[1].superuser(DATABASE).unwrap().batch_execute(lie).unwrap();
    let mut master = cluster.superuser().unwrap();
    let mut client = cluster.superuser().unwrap();
    // This also holds in a session that has cached the route.
    assert_eq!(text(&mut client, WRITE), "shard_b");
    master.query("SELECT * FROM shard_check('shard_b')", &[]).unwrap();
    assert_eq!(refused(&mut client, WRITE).0, "55000");
    let done = adopt(&mut master, "");
    assert!(done.contains("not adopted: routing version 9223372036854775806"), "{done}");
    assert_eq!(refused(&mut client, WRITE).0, "55000");
    master.batch_execute("SELECT shard_set_status('shard_b', 'disabled')").unwrap();
    assert_eq!(text(&mut client, "SELECT shard_of('stays')"), "shard_a");
    assert_eq!(text(&mut master, "SELECT shard_routing_version()::text"), "2");
}

/// A copy of the master in another database, beside the living one.
#[ignore = "make test-all: a copy of the master; make test has security::parties::a_shard_remembers_its_master_until_it_is_dropped"]
#[test]
fn a_copy_of_a_master_moves_nothing_behind_a_redirect_that_was_dropped() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    finished(&split);
    split.drop_guard().unwrap();
    Dump::of(&cluster, "after").unwrap().restore_as(&cluster, "copy").unwrap();
    let mut copy = cluster.master.superuser("copy").unwrap();
    let query = "SELECT shard_split_plan('shard_b', 'shard_a', '{moves}')";
    let id: i64 = copy.query_one(query, &[]).unwrap().get(0);
    let check = "SELECT string_agg(detail, '; ') FROM shard_split_check($1) WHERE NOT ok";
    let found: String = copy.query_one(check, &[&id]).unwrap().get(0);
    assert!(found.contains("belongs to another master"), "{found}");
    // It has another shard's key, and is told of what came after it, without a worker of its own.
    let next = Split::plan(&cluster, "shard_a", "shard_b", &["stays"]).unwrap();
    finished(&next);
    next.drop_guard().unwrap();
    assert_eq!(text(&mut copy, "SELECT shard_of('stays')"), "shard_a");
    let check =
        "SELECT string_agg(detail, '; ') FROM shard_check('shard_a') WHERE NOT ok AND item = 'decisions'";
    assert!(text(&mut copy, check).contains("to \"shard_b\""));
    assert_eq!(refused(&mut copy, "SELECT shard_of('stays')").0, "55000");
}

/// Buckets and ranges have other bounds by now. A decision about a shard that the master does not know is reported.
#[test]
#[ignore = "make test-all: buckets and ranges; make test has a_key_that_moved_since_the_dump_is_not_written_before_it_is_adopted"]
fn buckets_and_ranges_are_taken_over_too() {
    let cluster = cluster(&[]);
    for server in 0..2 {
        by_owner(
            &cluster,
            server,
            &format!(
                "CREATE TABLE numbers (id bigint PRIMARY KEY); GRANT ALL ON numbers TO {CLIENT};
                 CREATE TABLE spread (id bigint PRIMARY KEY); GRANT ALL ON spread TO {CLIENT}"
            ),
        );
    }
    assert_eq!(OWNER, "app_owner");
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "SELECT shard_keyspace_add('numbers', 'range', key_type => 'bigint');
             SELECT shard_assign_range(NULL, NULL, 'shard_a', 'numbers');
             SELECT shard_table_add('numbers', 'id', 'numbers');
             SELECT shard_keyspace_add('spread', 'hash', key_type => 'bigint', buckets => 4);
             SELECT shard_assign_bucket(b, 'shard_a', 'spread', force => true) FROM generate_series(0, 3) b;
             SELECT shard_table_add('spread', 'id', 'spread')",
        )
        .unwrap();
    let dump = Dump::of(&cluster, "before").unwrap();
    for plan in [
        "SELECT shard_split_plan_range('shard_a', 'shard_b', '5', '20', keyspace => 'numbers')",
        // A part of the range goes back. Its name sorts before the range's.
        "SELECT shard_split_plan_range('shard_b', 'shard_a', '10', '15', keyspace => 'numbers')",
        "SELECT shard_split_plan('shard_a', 'shard_b', '{3}', keyspace => 'spread')",
    ] {
        let split = Split::plan_by(&cluster, plan).unwrap();
        finished(&split);
        split.drop_guard().unwrap();
    }
    drop(master);
    dump.restore(&cluster).unwrap();
    let mut master = asked(&cluster);
    let range = "SELECT shard_of('11', keyspace => 'numbers')";
    let ranges = "SELECT * FROM shard_route_range('5', '30', keyspace => 'numbers')";
    for statement in [range, ranges] {
        assert_eq!(refused(&mut master, statement).0, "55000", "{statement}");
    }
    // No other keyspace is blocked.
    assert_eq!(text(&mut master, WRITE), "shard_a");
    let done = adopt(&mut master, "");
    assert!(done.contains("numbers [5,20) shard_a shard_b is routed there now"), "{done}");
    assert!(done.contains("spread 3 shard_a shard_b is routed there now"), "{done}");
    for (key, shard) in [("4", "a"), ("6", "b"), ("11", "a"), ("16", "b"), ("21", "a")] {
        let query = format!("SELECT shard_of('{key}', keyspace => 'numbers')");
        assert_eq!(text(&mut master, &query), format!("shard_{shard}"), "{key}: {done}");
    }
    let entries =
        "SELECT string_agg(bucket || ' ' || write_shard, '; ' ORDER BY bucket) FROM shard_entries('spread')";
    assert_eq!(text(&mut master, entries), "0 shard_a; 1 shard_a; 2 shard_a; 3 shard_b");
}
