//! A move by one call, which continues where it was interrupted.

use postgres::{Client, NoTls};
use shardmaster_tests::cluster::{Cluster, DATABASE, OWNER};
use shardmaster_tests::fixture::{LIMIT, as_worker, cluster, outcome, rows};
use shardmaster_tests::matrix::leftovers;
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use std::sync::{Arc, Mutex};

/// Returns an operator's session, and the lines that it receives.
fn operator(cluster: &Cluster) -> (Client, Arc<Mutex<Vec<String>>>) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let heard = lines.clone();
    let mut config = cluster.master.config(DATABASE, "postgres");
    config.notice_callback(move |notice| {
        if notice.severity() == "INFO" {
            heard.lock().unwrap().push(notice.message().to_owned());
        }
    });
    (config.connect(NoTls).unwrap(), lines)
}

/// Makes a call, and returns its lines and its outcome.
fn call(cluster: &Cluster, arguments: &str) -> (String, String) {
    let (mut operator, lines) = operator(cluster);
    let ended = outcome(&mut operator, &format!("CALL shard_move({arguments})"));
    drop(operator);
    let lines = lines.lock().unwrap().join("\n");
    (lines, ended)
}

fn hint(cluster: &Cluster, arguments: &str) -> String {
    let call = format!("CALL shard_move({arguments})");
    let error = cluster.superuser().unwrap().batch_execute(&call).unwrap_err();
    let error = error.as_db_error().unwrap();
    format!("{}; {}", error.message(), error.hint().unwrap_or_default())
}

const MOVES: &str = "'{moves}', 'shard_b'";

#[test]
fn a_move_is_verified_on_both_sides_of_its_cutover_and_goes_on_when_it_is_called_again() {
    let cluster = cluster(&[]);
    let expected = rows(&cluster, 0);
    let (lines, ended) = call(&cluster, MOVES);
    assert_eq!(ended, "ok", "{lines}");
    assert_eq!(lines.matches("verified, every row is the same").count(), 2, "{lines}");
    assert!(lines.ends_with("next: SELECT shard_split_finish(1)"), "{lines}");
    assert_eq!(rows(&cluster, 1), expected);
    // Rows that were verified after the cutover are not compared again.
    let (lines, ended) = call(&cluster, MOVES);
    assert_eq!((ended.as_str(), lines.contains("verifying")), ("ok", false), "{lines}");
    assert_eq!(rows(&cluster, 0), expected);
    let (lines, ended) = call(&cluster, &format!("{MOVES}, finish => true"));
    assert_eq!((ended.as_str(), lines.contains("split 1: finished after")), ("ok", true), "{lines}");
    assert!(rows(&cluster, 0).is_empty());
    let (lines, ended) = call(&cluster, MOVES);
    let wanted = "all of these keys are already on shard \"shard_b\"";
    assert_eq!((ended.as_str(), lines.as_str()), ("ok", wanted));
    // The list may contain keys that are on the target already.
    let (lines, ended) = call(&cluster, "'{stays,moves}', 'shard_b', verify => false, finish => true");
    assert_eq!((ended.as_str(), lines.contains("verif")), ("ok", false), "{lines}");
    let of = "SELECT concat_ws(' ', shard_of('stays'), shard_of('moves'))";
    let of: String = cluster.superuser().unwrap().query_one(of, &[]).unwrap().get(0);
    assert_eq!(of, "shard_b shard_b");
    assert_eq!(
        leftovers(&mut cluster.servers[1].superuser(DATABASE).unwrap()).unwrap(),
        Vec::<String>::new()
    );
}

#[test]
fn what_cannot_be_moved_is_refused_before_anything_is_planned() {
    let cluster = cluster(&[]);
    let mut master = cluster.superuser().unwrap();
    master.batch_execute("SELECT shard_assign('other', 'shard_b')").unwrap();
    for (arguments, state) in [
        ("'{moves}', 'nowhere'", "42704"),
        ("'{moves,nobody}', 'shard_b'", "42704"),
        ("'{moves}', 'shard_b', 'nothing'", "42704"),
        ("'{}', 'shard_b'", "22023"),
        ("NULL, 'shard_b'", "22004"),
        ("'{moves}', NULL", "22004"),
    ] {
        assert_eq!(call(&cluster, arguments), (String::new(), state.to_owned()), "{arguments}");
    }
    let call_in_block = outcome(&mut master, &format!("BEGIN; CALL shard_move({MOVES})"));
    assert_eq!(call_in_block, "25001");
    master.batch_execute("ROLLBACK").unwrap();
    let plans: i64 = master.query_one("SELECT count(*) FROM shardmaster.split_plan", &[]).unwrap().get(0);
    assert_eq!(plans, 0);
    // Keys of a completed split can only be moved back by its reverse split.
    assert_eq!(call(&cluster, &format!("{MOVES}, verify => false")).1, "ok");
    let said = hint(&cluster, "'{moves}', 'shard_a'");
    assert!(said.contains("SELECT shard_split_reverse(1) takes the move back."), "{said}");
    let said = hint(&cluster, "'{other,stays}', 'shard_c'");
    assert!(said.starts_with("shard \"shard_c\" does not exist"), "{said}");
}

/// The caller's session ends in the middle, and the next call finds the split that another one has begun.
#[test]
fn a_call_that_has_died_is_made_again() {
    let cluster = cluster(&[]);
    let expected = rows(&cluster, 0);
    let (lines, ended) = call(&cluster, &format!("{MOVES}, wait => false"));
    assert_eq!((ended.as_str(), lines.contains("copies in the background")), ("ok", true), "{lines}");
    let split = Split::of(&cluster, 1);
    split.wait("cutover_pending", LIMIT).unwrap();
    cluster.hold("cutover_decided").unwrap();
    let (mut operator, _) = operator(&cluster);
    std::thread::scope(|scope| {
        let caller =
            scope.spawn(move || operator.batch_execute(&format!("CALL shard_move({MOVES})")).is_err());
        split.wait_held("cutover_decided", LIMIT).unwrap();
        let end =
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CALL shard_move%'";
        cluster.superuser().unwrap().batch_execute(end).unwrap();
        assert!(caller.join().unwrap());
    });
    cluster.fault("").unwrap();
    assert_eq!(call(&cluster, &format!("{MOVES}, finish => true")).1, "ok");
    assert_eq!(rows(&cluster, 1), expected);
    assert!(rows(&cluster, 0).is_empty());
}

/// The transaction that aborted the first attempt of the cutover has ended when the call is repeated.
#[test]
fn a_call_behind_an_aborted_cutover_goes_on() {
    let cluster = cluster(&["shardmaster.cutover_timeout = 300ms"]);
    assert_eq!(call(&cluster, &format!("{MOVES}, wait => false")).1, "ok");
    Split::of(&cluster, 1).wait("cutover_pending", LIMIT).unwrap();
    let mut writer = cluster.owner_of(&cluster.shards[0]).unwrap();
    writer.batch_execute("BEGIN; UPDATE items SET val = 'held' WHERE tenant = 'moves'").unwrap();
    let said = hint(&cluster, MOVES);
    assert!(said.contains("cutover aborted, waiting for a writer's transaction"), "{said}");
    writer.batch_execute("COMMIT").unwrap();
    let (lines, ended) = call(&cluster, MOVES);
    assert_eq!(ended, "ok", "{lines}");
    assert_eq!(lines.matches("verified, every row is the same").count(), 2, "{lines}");
}

/// Rows that differ stop the move before and after the cutover, and so does a remark of the check.
#[test]
fn it_stops_where_somebody_has_to_decide() {
    let cluster = cluster(&[]);
    for shard in &cluster.shards {
        let change = format!("SET ROLE {OWNER}; ALTER TABLE items ADD body oid");
        cluster.owner_of(shard).unwrap().batch_execute(&change).unwrap();
    }
    let said = hint(&cluster, MOVES);
    assert!(said.contains("shard_split_check(1) WHERE NOT ok lists them with what to do"), "{said}");
    let mut master = cluster.superuser().unwrap();
    let accept = "SELECT shard_split_accept(1, check_name, object) FROM shard_split_check(1) WHERE NOT ok";
    master.batch_execute(accept).unwrap();
    assert_eq!(call(&cluster, &format!("{MOVES}, wait => false")).1, "ok");
    let split = Split::of(&cluster, 1);
    split.wait("cutover_pending", LIMIT).unwrap();
    let spoil = |value: &str| {
        let spoil = format!("UPDATE items SET val = '{value}' WHERE tenant = 'moves' AND id = 2");
        as_worker(&cluster, &split, 1).batch_execute(&spoil).unwrap();
    };
    let expected = rows(&cluster, 0);
    spoil("wrong");
    let said = hint(&cluster, MOVES);
    assert!(said.starts_with("rows of split 1 differ on its two sides: items"), "{said}");
    assert!(said.contains("SELECT shard_split_repair(1) copies them again"), "{said}");
    master.batch_execute("SELECT shard_split_repair(1)").unwrap();
    assert_eq!(call(&cluster, MOVES).1, "ok");
    assert_eq!(rows(&cluster, 1), expected);
    spoil("wrong again");
    master.batch_execute("SELECT shard_split_verify(1)").unwrap();
    let differs = "SELECT bool_or(status = 'differs') FROM shard_split_verification(1)";
    wait::until_true(&mut master, "the verification", LIMIT, differs).unwrap();
    let said = hint(&cluster, MOVES);
    assert!(said.contains("SELECT shard_split_reverse(1) takes the split back."), "{said}");
}
