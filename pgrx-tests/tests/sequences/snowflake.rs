//! No identifier comes twice, however it is made and whatever happens to the server and its clock.

use postgres::Client;
use shardmaster_tests::cluster::Cluster;
use shardmaster_tests::server::Stop;
use std::collections::HashSet;

const MACHINE: &str = "shardmaster.machine_id = 77";

fn ids(client: &mut Client, count: i64) -> Vec<i64> {
    let query = "SELECT shard_snowflake_id() FROM generate_series(1, $1::bigint)";
    client.query(query, &[&count]).unwrap().iter().map(|row| row.get(0)).collect()
}

fn refusal(cluster: &Cluster) -> (String, String) {
    let error = cluster.superuser().unwrap().query_one("SELECT shard_snowflake_id()", &[]).unwrap_err();
    let error = error.as_db_error().unwrap();
    assert!(error.hint().is_some(), "{error:?}");
    (error.code().code().to_owned(), error.message().to_owned())
}

#[test]
fn eight_sessions_and_every_kind_of_restart() {
    let mut cluster = Cluster::servers(0, &[MACHINE]).unwrap();
    let mut seen = HashSet::new();
    let mut highest = 0;
    for stop in [None, Some(Stop::Fast), Some(Stop::Immediate), Some(Stop::Immediate)] {
        if let Some(stop) = stop {
            cluster.master.restart(stop).unwrap();
        }
        let sessions: Vec<Vec<i64>> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(|| ids(&mut cluster.superuser().unwrap(), 30_000))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for session in &sessions {
            assert!(session.is_sorted() && session[0] > highest);
        }
        let made = sessions.into_iter().flatten();
        seen.extend(made.inspect(|id| assert!(*id > 0)));
        highest = seen.iter().copied().max().unwrap();
    }
    assert_eq!(seen.len(), 4 * 8 * 30_000);
    let parts =
        "SELECT DISTINCT machine_id, created_at BETWEEN now() - interval '5 min' AND now() + interval '1 s'
                   FROM unnest($1::bigint[]) id, shard_snowflake_parts(id)";
    let some: Vec<i64> = seen.into_iter().take(1_000).collect();
    let rows = cluster.superuser().unwrap().query(parts, &[&some]).unwrap();
    let rows: Vec<(i32, bool)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(rows, [(77, true)]);
}

/// The file that the server reads at its start looks as if the clock had been set back by an hour while the
/// server was down.
#[test]
fn a_clock_that_was_set_back_while_the_server_was_down() {
    let mut cluster = Cluster::servers(0, &[MACHINE]).unwrap();
    ids(&mut cluster.superuser().unwrap(), 1);
    cluster.master.stop(Stop::Fast).unwrap();
    let file = cluster.master.data().join("shardmaster.snowflake");
    let text = std::fs::read_to_string(&file).unwrap();
    let numbers: Vec<u64> = text.split_whitespace().map(|number| number.parse().unwrap()).collect();
    std::fs::write(&file, format!("{} {}\n", numbers[0], numbers[1] + 3_600_000)).unwrap();
    cluster.master.run().unwrap();
    let (state, message) = refusal(&cluster);
    assert!(state == "55000" && message.contains("behind the last identifier"), "{state} {message}");
    // A file that cannot be read is an error.
    cluster.master.stop(Stop::Fast).unwrap();
    std::fs::write(&file, "nonsense").unwrap();
    cluster.master.run().unwrap();
    assert_eq!(refusal(&cluster).0, "58030");
    // The file is as before.
    cluster.master.stop(Stop::Fast).unwrap();
    std::fs::write(&file, text).unwrap();
    cluster.master.run().unwrap();
    ids(&mut cluster.superuser().unwrap(), 1);
    // With another epoch, identifiers would come twice.
    cluster.master.configure(&["shardmaster.snowflake_epoch = '2023-01-01'"]).unwrap();
    cluster.master.restart(Stop::Fast).unwrap();
    let (state, message) = refusal(&cluster);
    assert!(state == "55000" && message.contains("epoch"), "{state} {message}");
}

#[test]
fn a_machine_id_from_a_name_is_warned_of() {
    let mut cluster = Cluster::servers(0, &[]).unwrap();
    let (state, message) = refusal(&cluster);
    assert_eq!((state.as_str(), message.as_str()), ("55000", "no machine id is set"));
    cluster.master.configure(&["shardmaster.worker_id = 'worker-1'"]).unwrap();
    cluster.master.restart(Stop::Fast).unwrap();
    let mut client = cluster.superuser().unwrap();
    let machine = "SELECT machine_id = shard_for('worker-1', 1024) FROM shard_snowflake_id() id, shard_snowflake_parts(id)";
    assert!(client.query_one(machine, &[]).unwrap().get::<_, bool>(0));
    assert!(cluster.master.log_tail(10_000).contains("share one with a probability of"));
}

#[test]
fn without_preload_there_are_none() {
    let mut cluster = Cluster::servers(0, &[MACHINE]).unwrap();
    cluster.master.configure(&["shared_preload_libraries = ''"]).unwrap();
    cluster.master.restart(Stop::Fast).unwrap();
    let (state, message) = refusal(&cluster);
    assert!(state == "55000" && message.contains("shared memory"), "{state} {message}");
}
