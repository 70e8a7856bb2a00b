//! How a client finds its shard: it asks the master once for each tenant, keeps the answer, and asks again
//! when a shard says that the rows have moved.

use super::model::Tenant;
use crate::cluster::CLIENT;
use crate::{Error, Result};
use postgres::{Client, Config, NoTls, Statement};
use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The answer of `shard_route`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub shard: String,
    /// The connection string, or `None` for the master's own database.
    pub conninfo: Option<String>,
    pub version: i64,
    pub namespace: String,
}

/// A session on a shard, with its prepared statements.
pub struct Session {
    pub client: Client,
    statements: HashMap<&'static str, Statement>,
}

impl Session {
    pub fn prepared(&mut self, sql: &'static str) -> std::result::Result<Statement, postgres::Error> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql)?;
        self.statements.insert(sql, statement.clone());
        Ok(statement)
    }
}

type Place = (Option<String>, String);

/// One writer's routes and sessions.
pub struct Router {
    master: Config,
    keyspace: &'static str,
    asking: Option<Client>,
    tenants: Arc<Vec<String>>,
    /// Statements that each new session runs first.
    settings: Vec<String>,
    routes: HashMap<Tenant, Route>,
    sessions: HashMap<Place, Session>,
}

impl Router {
    pub fn new(
        master: Config,
        keyspace: &'static str,
        tenants: Arc<Vec<String>>,
        settings: Vec<String>,
    ) -> Router {
        Router {
            master,
            keyspace,
            asking: None,
            tenants,
            settings,
            routes: HashMap::new(),
            sessions: HashMap::new(),
        }
    }

    /// Returns the cached route, or asks the master.
    pub fn route(&mut self, tenant: Tenant) -> Result<Route> {
        match self.routes.get(&tenant) {
            Some(route) => Ok(route.clone()),
            None => self.ask(tenant),
        }
    }

    /// Asks the master. Returns true if the answer is another place than the cached one.
    pub fn refresh(&mut self, tenant: Tenant) -> Result<bool> {
        let before = self.routes.get(&tenant).cloned();
        let now = self.ask(tenant)?;
        Ok(before.is_none_or(|before| before.shard != now.shard))
    }

    fn ask(&mut self, tenant: Tenant) -> Result<Route> {
        let answer = self.ask_master(tenant);
        if answer.as_ref().is_err_and(|e| e.sqlstate().is_none_or(|code| code.starts_with("57P"))) {
            self.asking = None; // the next question opens a new session
        }
        let route = answer?;
        self.routes.insert(tenant, route.clone());
        Ok(route)
    }

    fn ask_master(&mut self, tenant: Tenant) -> Result<Route> {
        let client = match &mut self.asking {
            Some(client) => client,
            empty => empty.insert(self.master.clone().connect_timeout(CONNECT_LIMIT).connect(NoTls)?),
        };
        let query =
            "SELECT shard_key, conninfo, routing_version, namespace FROM shard_route($1, 'write', $2)";
        let row = client.query_one(query, &[&self.tenants[tenant], &self.keyspace])?;
        Ok(Route {
            shard: row.get(0),
            conninfo: row.get::<_, Option<String>>(1).filter(|text| !text.is_empty()),
            version: row.get(2),
            namespace: row.get(3),
        })
    }

    /// Returns the session for a tenant's writes.
    pub fn session(&mut self, tenant: Tenant) -> Result<&mut Session> {
        let route = self.route(tenant)?;
        let place = (route.conninfo, route.namespace);
        if !self.sessions.contains_key(&place) {
            let session = self.open(&place)?;
            self.sessions.insert(place.clone(), session);
        }
        self.sessions.get_mut(&place).ok_or_else(|| Error::from("the session was just opened"))
    }

    fn open(&self, (conninfo, namespace): &Place) -> Result<Session> {
        let mut config = match conninfo {
            Some(text) => {
                Config::from_str(text).map_err(|e| Error::from(e).context("conninfo of a route"))?
            }
            None => self.master.clone(),
        };
        let mut client = config.user(CLIENT).connect_timeout(CONNECT_LIMIT).connect(NoTls)?;
        client.batch_execute(&format!("SET search_path = \"{}\"", namespace.replace('"', "\"\"")))?;
        for setting in &self.settings {
            client.batch_execute(setting)?;
        }
        Ok(Session { client, statements: HashMap::new() })
    }

    /// Closes a tenant's session, whose connection is broken.
    pub fn forget_session(&mut self, tenant: Tenant) {
        if let Some(route) = self.routes.get(&tenant) {
            self.sessions.remove(&(route.conninfo.clone(), route.namespace.clone()));
        }
    }
}
