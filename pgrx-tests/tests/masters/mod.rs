//! The master: restored from a backup, failed over, upgraded, its workers and its settings.

mod extension_update;
mod failover;
mod pg_upgrade;
mod pgbouncer;
mod restore_older;
mod restored_history;
mod restored_keyspace;
mod restored_plans;
mod restored_redirects;
mod restored_roles;
mod restored_routes;
mod settings;
mod workers;
