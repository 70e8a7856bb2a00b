//! The ends of redirects: by an assignment of their keys, by the operator, by age, or with their shard.

use postgres::Client;
use shardmaster_tests::cluster::DATABASE;
use shardmaster_tests::env::at_most;
use shardmaster_tests::fixture::{LIMIT, client, cluster, finished, insert, outcome, plan, source};
use shardmaster_tests::matrix::leftovers;
use shardmaster_tests::server::Stop;
use shardmaster_tests::single_fault::SingleFault;
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;

fn wait_until_ok(client: &mut Client, statement: &str) {
    wait::until("the redirect to let the key in", LIMIT, || {
        Ok((outcome(client, statement) == "ok").then_some(()))
    })
    .unwrap();
}

/// A key that is being assigned back is accepted, and the others are not.
#[test]
#[ignore = "make test-all: an assignment; make test has routing::address_aliases::keys_that_are_assigned_to_another_address_of_their_old_shard_are_let_in"]
fn a_key_given_back_by_hand_is_let_in() {
    let cluster = cluster(&[]);
    let mut master = cluster.superuser().unwrap();
    master.batch_execute("SELECT shard_assign('other', 'shard_a')").unwrap();
    let split = Split::plan(&cluster, "shard_a", "shard_b", &["moves", "other"]).unwrap();
    finished(&split);
    let mut client = client(&cluster);
    master.batch_execute("BEGIN; SELECT shard_assign('moves', 'shard_a', force => true); ROLLBACK").unwrap();
    assert_eq!(outcome(&mut client, &insert("moves", 1)), "SM001");
    master.batch_execute("SELECT shard_assign('moves', 'shard_a', force => true)").unwrap();
    wait_until_ok(&mut client, &insert("moves", 1));
    assert_eq!(outcome(&mut client, &insert("other", 1)), "SM001");
    split.drop_guard().unwrap();
    assert_eq!(outcome(&mut client, &insert("other", 1)), "ok");
    assert_eq!(leftovers(&mut source(&cluster)).unwrap(), Vec::<String>::new());
}

/// The worker ends while it tells the shard, before the shard's commit or after it.
#[test]
fn an_end_that_is_interrupted_is_gone_on_with() {
    let cluster = cluster(&[]);
    for (point, action) in [
        ("redirect_begin", "kill"),
        ("redirect_ended", "kill"),
        ("redirect_ended", "exit"),
        ("redirect_ended", "error"),
    ]
    .into_iter()
    .take(at_most(2))
    {
        finished(&plan(&cluster));
        let fault = SingleFault::arm(&cluster, point, action).unwrap();
        let assign = "SELECT shard_assign('moves', 'shard_a', force => true)";
        // The server may restart before it answers.
        let _ = cluster.superuser().unwrap().batch_execute(assign);
        fault.wait(LIMIT).unwrap();
        wait::until("the end of the redirect", LIMIT, || {
            let Ok(mut master) = cluster.superuser() else { return Ok(None) };
            let is_over = "SELECT shard_of('moves') = 'shard_a' AND NOT EXISTS (SELECT FROM shard_guards())";
            Ok(master.query_one(is_over, &[]).ok().and_then(|row| row.get::<_, bool>(0).then_some(())))
        })
        .unwrap();
        assert_eq!(outcome(&mut client(&cluster), &insert("moves", 1)), "ok", "{point} {action}");
        assert_eq!(leftovers(&mut source(&cluster)).unwrap(), Vec::<String>::new());
        source(&cluster).batch_execute("DELETE FROM items WHERE tenant = 'moves'").unwrap();
        cluster.servers[1].superuser(DATABASE).unwrap().batch_execute("DELETE FROM items").unwrap();
        client(&cluster).batch_execute(&insert("moves", 1)).unwrap();
        cluster.superuser().unwrap().batch_execute("DELETE FROM shardmaster.fault_fired").unwrap();
    }
}

/// An assignment asks no shard. A shard that is out of reach is told when it is back.
#[test]
#[ignore = "make test-all: a shard out of reach; make test has routing::address_aliases::a_shard_that_does_not_answer_is_asked_again"]
fn an_assignment_does_not_wait_for_the_shard() {
    let mut cluster = cluster(&["shardmaster.max_split_workers = 1"]);
    let id = {
        let split = plan(&cluster);
        finished(&split);
        split.id
    };
    cluster.servers[0].stop(Stop::Fast).unwrap();
    let mut master = cluster.superuser().unwrap();
    master.batch_execute("SELECT shard_assign('moves', 'shard_a', force => true)").unwrap();
    let waits = "SELECT coalesce(waiting_for, '') LIKE '%shard_a%' FROM shard_split_metrics($1)";
    wait::until("the worker to miss the shard", LIMIT, || {
        Ok(master.query_one(waits, &[&id])?.get::<_, bool>(0).then_some(()))
    })
    .unwrap();
    let alone =
        "SELECT NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE backend_type LIKE 'shardmaster split%')";
    wait::until_true(&mut master, "the worker to end", LIMIT, alone).unwrap();
    cluster.servers[0].run().unwrap();
    wait_until_ok(&mut client(&cluster), &insert("moves", 1));
}

/// A shard that redirects stale clients cannot be dropped.
#[test]
#[ignore = "make test-all: a shard that is dropped; make test has a_redirect_ends_by_itself"]
fn a_shard_with_a_redirect_is_not_dropped() {
    let cluster = cluster(&[]);
    let split = Split::plan(&cluster, "shard_a", "shard_b", &["moves", "stays"]).unwrap();
    finished(&split);
    let mut master = cluster.superuser().unwrap();
    let error = master.batch_execute("SELECT shard_drop('shard_a')").unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "55006");
    assert!(error.hint().unwrap_or_default().contains("shard_split_redirect_drop"), "{error}");
    split.drop_guard().unwrap();
    master.batch_execute("SELECT shard_drop('shard_a')").unwrap();
}

/// The source is gone for good after finish. Its redirect can be dropped, and then its name.
#[test]
#[ignore = "make test-all: a lost source; make test has a_redirect_ends_by_itself"]
fn a_redirect_of_a_lost_source_can_be_given_up() {
    let mut cluster = cluster(&["shardmaster.remote_timeout = '2s'"]);
    let id = {
        let split = plan(&cluster);
        finished(&split);
        split.id
    };
    cluster.servers[0].stop(Stop::Immediate).unwrap();
    let mut master = cluster.superuser().unwrap();
    master.batch_execute("SELECT shard_assign_many(array_agg(key), 'shard_b', force => true) FROM shard_entries() WHERE read_shard = 'shard_a'").unwrap();
    assert!(master.execute("SELECT shard_split_redirect_drop($1)", &[&id]).is_err());
    assert!(master.batch_execute("SELECT shard_drop('shard_a')").is_err());
    master.execute("SELECT shard_split_redirect_drop($1, source_lost => true)", &[&id]).unwrap();
    let left: i64 = master.query_one("SELECT count(*) FROM shard_guards()", &[]).unwrap().get(0);
    assert_eq!(left, 0);
    master.batch_execute("SELECT shard_drop('shard_a')").unwrap();
}

/// The last assignment of a key counts, even while the worker is ending its redirect.
#[test]
#[ignore = "make test-all: another moment; make test has an_end_that_is_interrupted_is_gone_on_with"]
fn a_word_that_comes_while_a_redirect_is_to_end_counts() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    finished(&split);
    cluster.hold("redirect_begin").unwrap();
    let mut master = cluster.superuser().unwrap();
    master.batch_execute("SELECT shard_assign('moves', 'shard_a', force => true)").unwrap();
    split.wait_held("redirect_begin", LIMIT).unwrap();
    master.batch_execute("SELECT shard_assign('moves', 'shard_b', force => true)").unwrap();
    cluster.fault("").unwrap();
    let rests = "SELECT NOT redirect_ending FROM shardmaster.split_plan WHERE reverse_of IS NULL";
    wait::until_true(&mut master, "the worker to have looked", LIMIT, rests).unwrap();
    let kept: i64 =
        master.query_one("SELECT count(*) FROM shard_guards() WHERE state <> 'ending'", &[]).unwrap().get(0);
    assert_eq!(kept, 1);
    let stale = outcome(&mut client(&cluster), &insert("moves", 9_002));
    assert!(stale.contains("SM001"), "{stale}");
}

#[test]
fn a_redirect_ends_by_itself() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    finished(&split);
    assert_eq!(outcome(&mut client(&cluster), &insert("moves", 9001)), "SM001");
    cluster.set("shardmaster.redirect_retention", "1s").unwrap();
    wait::until("the redirect to end", LIMIT, || {
        Ok(leftovers(&mut source(&cluster))?.is_empty().then_some(()))
    })
    .unwrap();
    wait::until("the event", LIMIT, || Ok(split.events()?.contains("redirect_retention").then_some(())))
        .unwrap();
    let mut master = cluster.superuser().unwrap();
    let left: i64 = master.query_one("SELECT count(*) FROM shard_guards()", &[]).unwrap().get(0);
    assert_eq!(left, 0);
    assert_eq!(outcome(&mut client(&cluster), &insert("moves", 9001)), "ok");
}

/// Both sides of a running split are listed, and then its redirect.
#[test]
#[ignore = "make test-all: what is listed; make test has a_redirect_ends_by_itself"]
fn guards_are_listed() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    let mut master = cluster.superuser().unwrap();
    let mut guards = || {
        let query = "SELECT format('%s %s %s %s', shard_key, side, state, keys) FROM shard_guards() ORDER BY side, shard_key";
        let rows = master.query(query, &[]).unwrap();
        rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>()
    };
    assert!(guards().is_empty());
    split.call("start_dual_write").unwrap();
    split.wait("dual_write", LIMIT).unwrap();
    // The target captures for the reverse split.
    let way_back = "shard_b source capture 1";
    assert_eq!(guards(), ["shard_a source capture 1", way_back, "shard_b target closed 1"]);
    split.run(|_| ()).unwrap();
    wait::until("the source to be told", LIMIT, || {
        Ok((guards() == ["shard_a source moved 1", way_back, "shard_b target open 1"]).then_some(()))
    })
    .unwrap();
    split.finish(LIMIT).unwrap();
    assert_eq!(guards(), ["shard_a source redirect 1"]);
    split.drop_guard().unwrap();
    assert!(guards().is_empty());
}
