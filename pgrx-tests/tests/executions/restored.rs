//! Statements on all shards, and a master that has failed over to a standby without its last writes. Nothing
//! is run twice without an operator's consent, and nothing is undone that may have been decided.

use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::fixture::LIMIT;
use shardmaster_tests::queries::error;
use shardmaster_tests::server::{Server, Stop};
use shardmaster_tests::two_phase::{INSERT, dba, held, prepared, runs, stage, states};
use shardmaster_tests::{standby, wait};

const RETRY: &str = "CALL shard_execute_resume(1, retry => true)";
const RESUME: &str = "CALL shard_execute_resume(1)";

/// Promotes the standby in the master's place.
fn fail_over(cluster: &mut Cluster, promoted: Server) {
    cluster.master.stop(Stop::Kill).unwrap();
    promoted.promote().unwrap();
    cluster.master = promoted;
    cluster.fault("").unwrap();
}

fn errors(cluster: &Cluster) -> String {
    let query = "SELECT coalesce(string_agg(message, '; '), '') FROM shard_executions()";
    cluster.superuser().unwrap().query_one(query, &[]).unwrap().get(0)
}

/// As far as the standby knows, two shards are waiting. They have run the statement already.
#[test]
fn what_a_master_has_forgotten_is_not_done_again() {
    let mut cluster = stage(2);
    let begin = "SELECT shardmaster.execution_begin('INSERT INTO runs DEFAULT VALUES', 'default', NULL, 1, true, '1 min', false)";
    dba(&cluster).batch_execute(begin).unwrap();
    let promoted = standby::start(&cluster.master).unwrap();
    standby::separate(&cluster.master, &promoted).unwrap();
    dba(&cluster).batch_execute(RESUME).unwrap();
    assert_eq!(runs(&cluster), [1, 1]);
    fail_over(&mut cluster, promoted);
    assert_eq!(states(&cluster), ["waiting", "waiting"]);
    let (state, message) = error(&mut dba(&cluster), RESUME);
    assert_eq!(state, "55000");
    assert!(message.contains("it is not known whether shard \"shard_a\" has done it"), "{message}");
    assert_eq!(states(&cluster), ["unknown", "unknown"]);
    assert!(errors(&cluster).contains("restored or failed over"), "{}", errors(&cluster));
    assert_eq!(runs(&cluster), [1, 1]);
    // The operator has checked and consents. From then on the master knows the state.
    let refuse = "ALTER TABLE runs ADD CONSTRAINT no CHECK (n < 0) NOT VALID";
    let mut second = cluster.servers[1].superuser(DATABASE).unwrap();
    second.batch_execute(refuse).unwrap();
    assert_eq!(error(&mut dba(&cluster), RETRY).0, "23514");
    second.batch_execute("ALTER TABLE runs DROP CONSTRAINT no").unwrap();
    dba(&cluster).batch_execute(RESUME).unwrap();
    assert_eq!((runs(&cluster), states(&cluster)), (vec![2, 2], vec!["done".to_owned(); 2]));
}

/// The execution was decided, and one shard has committed. The standby does not know this. The other shard's
/// transaction is left as it is.
#[test]
fn what_may_have_been_decided_is_not_undone() {
    let mut cluster = stage(2);
    let promoted = standby::start(&cluster.master).unwrap();
    let call = held(&cluster, "execution_running", INSERT);
    standby::separate(&cluster.master, &promoted).unwrap();
    cluster.hold("execution_decided").unwrap();
    shardmaster_tests::two_phase::wait_held(&cluster, "execution_decided");
    let gid = "SELECT gid FROM pg_prepared_xacts";
    let end = |server: usize| {
        let mut shard = cluster.servers[server].superuser(DATABASE).unwrap();
        let gid: String = shard.query_one(gid, &[]).unwrap().get(0);
        shard.batch_execute(&format!("COMMIT PREPARED '{gid}'")).unwrap();
    };
    end(0);
    cluster.master.stop(Stop::Kill).unwrap();
    assert!(call.join().unwrap().is_some());
    fail_over(&mut cluster, promoted);
    let is_left = || {
        let said = errors(&cluster);
        Ok(said.contains("may lack the decision").then_some(()))
    };
    wait::until("the worker to leave it", LIMIT, is_left)
        .unwrap_or_else(|why| panic!("{why}: {:?} {}", states(&cluster), errors(&cluster)));
    assert_eq!((runs(&cluster), prepared(&cluster)), (vec![1, 0], 1));
    // The shard without a prepared transaction may have committed it. So the operator's consent does not end
    // the other one's.
    let mut second = cluster.servers[1].superuser(DATABASE).unwrap();
    let gid: String = second.query_one(gid, &[]).unwrap().get(0);
    wait::until("what is prepared to be in the way", LIMIT, || {
        Ok(error(&mut dba(&cluster), RETRY).1.contains(&gid).then_some(()))
    })
    .unwrap();
    // The hint does not say that it was decided.
    let said = dba(&cluster).batch_execute(RETRY).unwrap_err();
    let hint = said.as_db_error().unwrap().hint().unwrap_or_default().to_owned();
    assert!(hint.contains("See on the other shards") && !hint.contains("decided"), "{hint}");
    assert_eq!((runs(&cluster), prepared(&cluster)), (vec![1, 0], 1));
    second.batch_execute(&format!("COMMIT PREPARED '{gid}'")).unwrap();
    wait::until("nobody to know", LIMIT, || {
        Ok((error(&mut dba(&cluster), RESUME).0 == "55000").then_some(()))
    })
    .unwrap();
    assert_eq!((runs(&cluster), states(&cluster)), (vec![1, 1], vec!["unknown".to_owned(); 2]));
    dba(&cluster).batch_execute(RETRY).unwrap();
    assert_eq!((runs(&cluster), states(&cluster)), (vec![2, 2], vec!["done".to_owned(); 2]));
}
