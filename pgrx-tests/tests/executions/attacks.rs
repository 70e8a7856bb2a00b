//! Statements on all shards, and attempts to break them: transactions that a failover restores as prepared,
//! logins that are revoked, roles that triggers set, and routines that commit.

use shardmaster_tests::cluster::DATABASE;
use shardmaster_tests::fixture::{LIMIT, by_superuser, by_superusers};
use shardmaster_tests::queries::error;
use shardmaster_tests::two_phase::{INSERT, dba, held, number, prepared, runs, stage, states};
use shardmaster_tests::{standby, wait};

/// The standby has the prepared transaction, and not its commit, which was already reported. Its locks would stay.
#[test]
fn what_a_failover_has_prepared_again_is_committed() {
    let mut cluster = stage(2);
    let promoted = standby::add(&cluster, 1).unwrap();
    let call = held(
        &cluster,
        "execution_decided",
        "CALL shard_execute('ALTER TABLE items ADD note text', two_phase => true)",
    );
    standby::cut_off(&cluster, 1, &promoted).unwrap();
    cluster.fault("").unwrap();
    assert_eq!(call.join().unwrap(), None);
    standby::fail_over(&mut cluster, 1, promoted).unwrap();
    assert_eq!(number(&cluster, 1, "SELECT count(*) FROM pg_prepared_xacts"), 1);
    wait::until("it to be ended", LIMIT, || Ok((prepared(&cluster) == 0).then_some(()))).unwrap();
    let has_it = "SELECT count(*) FROM pg_attribute WHERE attrelid = 'items'::regclass AND attname = 'note'";
    assert_eq!(number(&cluster, 1, has_it), 1);
    dba(&cluster).batch_execute("CALL shard_execute_resume(1)").unwrap();
    assert_eq!(states(&cluster), ["done", "done"]);
}

/// What is left of an execution may be ended with the logins with which it began. It runs again only as a
/// role that has these logins.
#[test]
fn whoever_has_lost_a_login_does_nothing_with_it() {
    let cluster = stage(2);
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "SELECT shard_login_drop('dba'); CREATE ROLE crew; GRANT crew TO dba; SELECT shard_login_set('crew', 'deployer')",
        )
        .unwrap();
    by_superuser(&cluster, 1, "ALTER TABLE runs ADD CONSTRAINT no CHECK (n < 0) NOT VALID");
    let mut dba = dba(&cluster);
    assert_eq!(error(&mut dba, INSERT).0, "23514");
    by_superuser(&cluster, 1, "ALTER TABLE runs DROP CONSTRAINT no");
    master.batch_execute("REVOKE crew FROM dba").unwrap();
    assert_eq!(error(&mut dba, "CALL shard_execute_resume(1)").0, "42501");
    master
        .batch_execute(
            "CREATE ROLE others; GRANT others TO dba; SELECT shard_login_set('others', 'deployer')",
        )
        .unwrap();
    let (state, message) = error(&mut dba, "CALL shard_execute_resume(1)");
    assert_eq!(state, "42501");
    assert!(message.contains("begun with the logins of role \"crew\""), "{message}");
    assert_eq!(runs(&cluster), [0, 0]);
    master.batch_execute("REVOKE others FROM dba; GRANT crew TO dba").unwrap();
    dba.batch_execute("CALL shard_execute_resume(1)").unwrap();
    assert_eq!(runs(&cluster), [1, 1]);
}

/// A deferred trigger runs as the role that the statement has set, both in two phases and in one. The role
/// that the trigger sets does not decide who may end the transaction.
#[test]
fn a_role_that_a_deferred_trigger_sets_ends_nothing() {
    let cluster = stage(2);
    by_superusers(
        &cluster,
        "CREATE ROLE low; GRANT low TO deployer; CREATE TABLE told (who name); GRANT ALL ON told TO PUBLIC;
         GRANT INSERT ON runs TO low; GRANT USAGE ON SEQUENCE runs_n_seq TO low;
         CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
            $$BEGIN INSERT INTO told VALUES (current_user); PERFORM set_config('role', 'low', true); RETURN NULL; END$$;
         CREATE CONSTRAINT TRIGGER late AFTER INSERT ON runs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION tell()",
    );
    let mut dba = dba(&cluster);
    let as_low = "DO $q$BEGIN SET LOCAL ROLE low; INSERT INTO runs DEFAULT VALUES; END$q$";
    for two_phase in [false, true] {
        dba.execute("CALL shard_execute($1, two_phase => $2)", &[&as_low, &two_phase]).unwrap();
    }
    dba.batch_execute(INSERT).unwrap();
    assert_eq!((runs(&cluster), prepared(&cluster)), (vec![3; 2], 0));
    let who = "SELECT string_agg(who, ' ' ORDER BY who) FROM told";
    let who: String = cluster.servers[0].superuser(DATABASE).unwrap().query_one(who, &[]).unwrap().get(0);
    assert_eq!(who, "deployer low low");
}

/// A failure does not undo what the routine has committed.
#[test]
fn a_routine_that_may_have_committed_is_not_run_again() {
    let cluster = stage(1);
    by_superusers(
        &cluster,
        "CREATE PROCEDURE late() LANGUAGE plpgsql AS $$BEGIN INSERT INTO runs DEFAULT VALUES; COMMIT; PERFORM 1 / 0; END$$",
    );
    let mut dba = dba(&cluster);
    let calls = ["CALL late()", "DO $q$BEGIN INSERT INTO runs DEFAULT VALUES; COMMIT; PERFORM 1 / 0; END$q$"];
    for (statement, id) in calls.into_iter().zip(1_i64..) {
        let failed =
            dba.execute("CALL shard_execute($1, in_transaction => false)", &[&statement]).unwrap_err();
        assert_eq!(failed.code().map(postgres::error::SqlState::code), Some("22012"), "{failed}");
        let resume = format!("CALL shard_execute_resume({id})");
        assert_eq!(error(&mut dba, &resume).0, "55000");
        assert_eq!(runs(&cluster), [id]);
        dba.batch_execute(&format!("SELECT shard_execute_abandon({id})")).unwrap();
    }
}
