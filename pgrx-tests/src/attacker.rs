//! A table owner who tries to get the mover's rights. His functions write the current role to the server's
//! log, which a rollback does not undo.

use crate::cluster::{Cluster, DATABASE, MOVER};
use postgres::Client;

/// Makes a role that owns the table `items` on all servers. The mover is a member of it.
pub fn own_the_table(cluster: &Cluster) {
    for server in &cluster.servers {
        let mut superuser = server.superuser(DATABASE).unwrap();
        superuser
            .batch_execute(&format!(
                "CREATE ROLE mallory LOGIN; GRANT mallory TO {MOVER}; GRANT CREATE ON SCHEMA public TO mallory;
                 ALTER TABLE items OWNER TO mallory"
            ))
            .unwrap();
        session(cluster, server.name())
            .batch_execute(
                "CREATE FUNCTION evil(text) RETURNS boolean LANGUAGE plpgsql SET search_path = public AS
                   $$ BEGIN RAISE LOG 'mallory''s code ran as %', current_user; RETURN true; END $$;
                 CREATE FUNCTION steady(text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE SET search_path = public AS
                   $$ BEGIN RAISE LOG 'mallory''s code ran as %', current_user; RETURN true; END $$;
                 CREATE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql AS
                   $$ BEGIN PERFORM public.evil('x'); RETURN NULL; END $$",
            )
            .unwrap();
    }
}

/// Opens the attacker's session on a shard.
pub fn session(cluster: &Cluster, shard: &str) -> Client {
    let server = cluster.servers.iter().find(|server| server.name() == shard).unwrap();
    server.connect(DATABASE, "mallory").unwrap()
}

/// Runs the attacker's statements on every shard.
pub fn by_attacker(cluster: &Cluster, statements: &str) {
    for server in &cluster.servers {
        session(cluster, server.name()).batch_execute(statements).unwrap();
    }
}

/// Whether the attacker's code has run with the mover's rights on any server.
pub fn is_mover(cluster: &Cluster) -> bool {
    let line = format!("mallory's code ran as {MOVER}");
    cluster.servers.iter().any(|server| std::fs::read_to_string(server.log_path()).unwrap().contains(&line))
}
