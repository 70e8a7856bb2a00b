//! The harness itself: servers start, crash, recover, and leave nothing behind.

use shardmaster_tests::server::{Server, Stop};

fn identifier(server: &Server) -> i64 {
    let query = "SELECT system_identifier FROM pg_control_system()";
    server.superuser("postgres").unwrap().query_one(query, &[]).unwrap().get(0)
}

#[test]
fn committed_rows_survive_every_stop() {
    let mut server = Server::start("crash", &[]).unwrap();
    server.superuser("postgres").unwrap().batch_execute("CREATE TABLE t (n int)").unwrap();
    for (n, how) in [Stop::Fast, Stop::Immediate, Stop::Kill].into_iter().enumerate() {
        server.superuser("postgres").unwrap().batch_execute("INSERT INTO t VALUES (1)").unwrap();
        server.restart(how).unwrap();
        let count: i64 =
            server.superuser("postgres").unwrap().query_one("SELECT count(*) FROM t", &[]).unwrap().get(0);
        assert_eq!(count, n as i64 + 1, "after {how:?}");
    }
}

#[test]
fn servers_are_told_apart_and_leave_nothing() {
    let one = Server::start("one", &[]).unwrap();
    let two = Server::start("two", &[]).unwrap();
    assert_ne!(identifier(&one), identifier(&two));
    let dir = one.socket_dir().to_owned();
    drop(one);
    assert!(!dir.exists());
}
