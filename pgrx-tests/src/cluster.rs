//! A master and its shards, with the roles that the documentation names.

use crate::env::Template;
use crate::server::Server;
use crate::{Error, Result, wait};
use postgres::Client;
use std::ops::{Deref, DerefMut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The database of the master, and of each shard that has a server of its own.
pub const DATABASE: &str = "app";

/// A kept session that does not answer within this time is replaced.
const ANSWERED: Duration = Duration::from_secs(10);

/// The role that owns the application's tables.
pub const OWNER: &str = "app_owner";
/// The role that moves rows.
pub const MOVER: &str = "mover";
/// On a shard with the extension, this makes the mover capture by the native function.
pub const NATIVE_CAPTURE: &str = "GRANT USAGE ON SCHEMA shardmaster TO mover;
    GRANT EXECUTE ON FUNCTION shardmaster.native_capture(bigint, int) TO mover";
/// The role of ordinary clients.
pub const CLIENT: &str = "app";

/// A shard: a database and a schema in it.
#[derive(Clone, Debug)]
pub struct Shard {
    pub key: String,
    /// Index into `Cluster::servers`. `None` means the master's own database.
    pub server: Option<usize>,
    pub namespace: String,
}

/// A master with the extension, and shards without it.
pub struct Cluster {
    pub master: Server,
    pub servers: Vec<Server>,
    pub shards: Vec<Shard>,
    /// A superuser's session that is not in use at the moment.
    kept: Mutex<Option<Client>>,
}

/// A session for one query. It is given back for the next one.
pub struct Kept<'a> {
    client: Option<Client>,
    back: &'a Mutex<Option<Client>>,
}

impl Deref for Kept<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.client.as_ref().expect("it is given back at the end")
    }
}

impl DerefMut for Kept<'_> {
    fn deref_mut(&mut self) -> &mut Client {
        self.client.as_mut().expect("it is given back at the end")
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if let Ok(mut back) = self.back.lock() {
            *back = self.client.take();
        }
    }
}

impl Cluster {
    /// Makes a master and `count` servers, each of which is one shard: `shard_a`, `shard_b`, ...
    pub fn servers(count: usize, config: &[&str]) -> Result<Cluster> {
        let mut cluster = Cluster::master_only(start_master(config)?);
        for index in 0..count {
            cluster.add_server(Server::start(&shard_name(index), config)?)?;
        }
        Ok(cluster)
    }

    /// Makes a cluster of servers that run already and are managed elsewhere.
    pub fn of_servers(master: Server, shards: Vec<Server>) -> Result<Cluster> {
        let mut cluster = Cluster::master_only(start_master_by(|_| Ok(master), &[])?);
        for server in shards {
            cluster.add_server(server)?;
        }
        Ok(cluster)
    }

    /// Makes a master of another major version, without shards.
    pub fn master_of_major(major: u32, config: &[&str]) -> Result<Cluster> {
        let start = |lines: &[&str]| Server::start_built(major, "master", lines);
        Ok(Cluster::master_only(start_master_by(start, config)?))
    }

    fn master_only(master: Server) -> Cluster {
        Cluster { master, servers: Vec::new(), shards: Vec::new(), kept: Mutex::default() }
    }

    /// Replaces the master by another one, which knows the shards and the names of their tables, and nothing else.
    pub fn replace_master(&mut self, config: &[&str]) -> Result<()> {
        self.master = start_master(config)?;
        self.kept = Mutex::default();
        let mut client = self.superuser()?;
        for shard in &self.shards {
            let conninfo = self.server_of(shard).conninfo(DATABASE, MOVER);
            client.execute("SELECT shard_add($1, $2)", &[&shard.key, &conninfo])?;
        }
        Ok(())
    }

    /// Promotes a standby of the master, which takes its place. Returns the old primary, which still runs.
    pub fn fail_over_to(&mut self, standby: Server) -> Result<Server> {
        standby.promote()?;
        self.kept = Mutex::default();
        Ok(std::mem::replace(&mut self.master, standby))
    }

    /// Adds a server of another major version.
    pub fn add_major(&mut self, major: u32) -> Result<()> {
        self.add_server(Server::start_major(major, &shard_name(self.servers.len()), &["fsync = off"])?)
    }

    /// Adds a shard that is a server of its own.
    pub fn add_server(&mut self, server: Server) -> Result<()> {
        let (index, key) = (self.servers.len(), server.name().to_owned());
        create_database(&server)?;
        self.servers.push(server);
        let shard = Shard { key, server: Some(index), namespace: "public".into() };
        prepare_shard(&mut self.owner_of(&shard)?, &shard.namespace)?;
        if std::env::var_os("SHARDMASTER_NATIVE_CAPTURE").is_some() {
            let extension = format!("CREATE EXTENSION shardmaster; {NATIVE_CAPTURE}");
            self.servers[index].superuser(DATABASE)?.batch_execute(&extension)?;
        }
        let conninfo = self.servers[index].conninfo(DATABASE, MOVER);
        self.superuser()?
            .execute("SELECT shard_add($1, $2)", &[&shard.key, &conninfo])
            .map_err(|e| crate::Error::from(e).context("shard_add"))?;
        self.shards.push(shard);
        Ok(())
    }

    /// Makes everything inside the master: each shard is a schema of its own database.
    pub fn namespaces(count: usize, config: &[&str]) -> Result<Cluster> {
        let local_user = format!("shardmaster.local_user = '{MOVER}'");
        let config: Vec<&str> = config.iter().copied().chain([local_user.as_str()]).collect();
        let mut cluster = Cluster::master_only(start_master(&config)?);
        for index in 0..count {
            let key = shard_name(index);
            let shard = Shard { namespace: key.clone(), key, server: None };
            prepare_shard(&mut cluster.owner_of(&shard)?, &shard.namespace)?;
            cluster
                .superuser()?
                .execute("SELECT shard_add($1, namespace => $2)", &[&shard.key, &shard.namespace])
                .map_err(|e| crate::Error::from(e).context("shard_add"))?;
            cluster.shards.push(shard);
        }
        Ok(cluster)
    }

    /// Returns the server that holds a shard.
    pub fn server_of(&self, shard: &Shard) -> &Server {
        shard.server.map_or(&self.master, |index| &self.servers[index])
    }

    /// Opens a superuser's session on the master.
    pub fn superuser(&self) -> Result<Client> {
        self.master.superuser(DATABASE)
    }

    /// Returns a kept superuser's session, for code that polls: opening a session is most of the cost of a query.
    pub fn kept(&self) -> Result<Kept<'_>> {
        let kept = self.kept.lock().map_err(|_| "a look has panicked")?.take();
        // Its server may have crashed since.
        let valid = kept.and_then(|mut client| client.is_valid(ANSWERED).ok().map(|()| client));
        let client = valid.map_or_else(|| self.superuser(), Ok)?;
        Ok(Kept { client: Some(client), back: &self.kept })
    }

    /// Opens an ordinary client's session on the master, for routes.
    pub fn client(&self) -> Result<Client> {
        self.master.connect(DATABASE, CLIENT)
    }

    /// Returns how an ordinary client connects to the master.
    pub fn client_config(&self) -> postgres::Config {
        self.master.config(DATABASE, CLIENT)
    }

    /// Opens a superuser's session on a shard, with its schema in the search path.
    pub fn owner_of(&self, shard: &Shard) -> Result<Client> {
        let mut client = self.server_of(shard).superuser(DATABASE)?;
        client.batch_execute(&format!("SET search_path = \"{}\"", shard.namespace))?;
        Ok(client)
    }

    /// Changes a setting of the running master.
    pub fn set(&self, setting: &str, value: &str) -> Result<()> {
        Cluster::set_by(&mut self.superuser()?, setting, value)
    }

    /// Changes a setting through an existing superuser's session on the master.
    pub fn set_by(client: &mut Client, setting: &str, value: &str) -> Result<()> {
        client.batch_execute(&format!("ALTER SYSTEM SET {setting} = '{}'", value.replace('\'', "''")))?;
        match client.batch_execute("SELECT pg_reload_conf()").map_err(Error::from) {
            // A worker that the setting kills may take the server down before it answers.
            Err(error) if error.is_lost() => Ok(()),
            outcome => outcome,
        }
    }

    /// Makes the worker wait at a named point of `shard_split_points()` until the fault changes.
    pub fn hold(&self, point: &str) -> Result<()> {
        self.fault(&format!("{point}=hold"))
    }

    /// Sets `shardmaster.fault`. An empty value releases held workers.
    pub fn fault(&self, fault: &str) -> Result<()> {
        self.set("shardmaster.fault", fault)
    }

    pub fn shard(&self, key: &str) -> Result<&Shard> {
        let found = self.shards.iter().find(|shard| shard.key == key);
        found.ok_or_else(|| format!("no shard \"{key}\" in this cluster").into())
    }
}

fn shard_name(index: usize) -> String {
    let letter = u8::try_from(index).ok().and_then(|i| b'a'.checked_add(i)).unwrap_or(b'z');
    format!("shard_{}", char::from(letter))
}

/// The first master of a test is copied with the extension. Further masters create the extension themselves,
/// so that no two have the same identity.
fn start_master(config: &[&str]) -> Result<Server> {
    static IS_TAKEN: AtomicBool = AtomicBool::new(false);
    let template = if IS_TAKEN.swap(true, Ordering::Relaxed) { Template::Plain } else { Template::Master };
    let start = |lines: &[&str]| {
        let mut master = Server::create_of(template, "master", lines)?;
        master.run()?;
        Ok(master)
    };
    start_master_by(start, config)
}

fn start_master_by(start: impl FnOnce(&[&str]) -> Result<Server>, config: &[&str]) -> Result<Server> {
    let database = format!("shardmaster.database = '{DATABASE}'");
    let mut lines = vec!["shared_preload_libraries = 'shardmaster'", database.as_str()];
    lines.extend_from_slice(config);
    let master = start(&lines)?;
    create_database(&master)?;
    let mut client = master.superuser(DATABASE)?;
    let made = client.query_opt("SELECT FROM pg_extension WHERE extname = 'shardmaster'", &[])?;
    if made.is_none() {
        EXTENSION.iter().try_for_each(|statement| client.batch_execute(statement))?;
    }
    Ok(master)
}

/// Makes a database the master's. A client may ask for routes, and needs no rights on the catalog.
pub const EXTENSION: [&str; 2] = [
    "CREATE EXTENSION shardmaster",
    "DO $$ DECLARE routine regprocedure;
     BEGIN
         FOR routine IN
             SELECT p.oid FROM pg_proc p
               JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
               JOIN pg_extension e ON e.oid = d.refobjid AND d.refclassid = 'pg_extension'::regclass
              WHERE e.extname = 'shardmaster' AND p.proname IN ('shard_of', 'shard_route', 'shard_routing_version')
         LOOP EXECUTE 'GRANT EXECUTE ON FUNCTION ' || routine || ' TO app'; END LOOP;
     END $$",
];

/// Creates the database and the roles, if the server was copied without them.
pub fn create_database(server: &Server) -> Result<()> {
    let mut client = server.superuser("postgres")?;
    let made = client.query_opt("SELECT 1 FROM pg_database WHERE datname = $1", &[&DATABASE])?;
    if made.is_some() {
        return Ok(());
    }
    let version: i32 = client.query_one("SELECT current_setting('server_version_num')::int", &[])?.get(0);
    preparations(version / 10_000).iter().try_for_each(|statement| Ok(client.batch_execute(statement)?))
}

/// Returns the statements that create the database, and the roles with the rights that the documentation names.
pub fn preparations(major: i32) -> Vec<String> {
    let replica_role = match major {
        ..15 => format!("ALTER ROLE {MOVER} SUPERUSER"),
        15.. => format!("GRANT SET ON PARAMETER session_replication_role TO {MOVER}"),
    };
    vec![
        format!("CREATE ROLE {OWNER} NOLOGIN"),
        format!("CREATE ROLE {MOVER} LOGIN"),
        format!("CREATE ROLE {CLIENT} LOGIN"),
        format!("GRANT {OWNER} TO {MOVER}"),
        format!("GRANT pg_monitor, pg_read_all_stats TO {MOVER}"),
        replica_role,
        format!("CREATE DATABASE {DATABASE}"),
        format!("GRANT CREATE, TEMP ON DATABASE {DATABASE} TO {MOVER}"),
    ]
}

/// Creates the schema, with rights for the application's roles.
pub fn prepare_shard(client: &mut Client, namespace: &str) -> Result<()> {
    client.batch_execute(&format!(
        "CREATE SCHEMA IF NOT EXISTS \"{namespace}\";
         GRANT USAGE, CREATE ON SCHEMA \"{namespace}\" TO {OWNER};
         GRANT USAGE ON SCHEMA \"{namespace}\" TO {CLIENT}"
    ))?;
    Ok(())
}

/// Waits until all rows of `shard_status()` are ok.
pub fn wait_healthy(client: &mut Client) -> Result<()> {
    let limit = Duration::from_secs(30);
    let mut seen = String::new();
    let outcome = wait::until("shard_status() to be all ok", limit, || {
        let rows = client.query("SELECT item, value, ok FROM shard_status()", &[])?;
        let well = !rows.is_empty() && rows.iter().all(|row| row.get::<_, Option<bool>>(2) == Some(true));
        let line = |row: &postgres::Row| {
            let (item, value, ok): (String, Option<String>, Option<bool>) =
                (row.get(0), row.get(1), row.get(2));
            format!("{item}: {} ({ok:?})\n", value.unwrap_or_default())
        };
        seen = rows.iter().map(line).collect();
        Ok(well.then_some(()))
    });
    outcome.map_err(|e| format!("{e}\n{seen}").into())
}
