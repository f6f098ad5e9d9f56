//! `firstwrite migrate`: creates a store, or brings it up to date.

use anyhow::Context as _;
use firstwrite_store::mysql_async::prelude::Queryable as _;
use firstwrite_store::{
    Migrated, MysqlStore, PostgresOptions, PostgresStore, SchemaName, SqliteStore,
};

use crate::command::{Exit, MigrateFlags};
use crate::config::{File, StoreUrl, UsageError};
use crate::opening::{self, unopened};
use crate::output;

/// Resolved settings of `firstwrite migrate`.
#[derive(Debug)]
pub(crate) struct Settings {
    store: StoreUrl,
    /// Name of the tables' schema.
    schema: SchemaName,
    grant_to: Option<String>,
    effect: Effect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// Do it.
    Apply,
    /// Print what would be done.
    Dump,
}

impl Settings {
    pub(crate) fn resolve(flags: MigrateFlags, file: &File) -> Result<Self, UsageError> {
        let mut store = file.store_or(flags.store.store.as_deref())?;
        if let (StoreUrl::Sqlite(_), Some(_)) =
            (&store, flags.schema.as_ref().or(flags.grant_to.as_ref()))
        {
            let message = "--schema and --grant-to are for PostgreSQL; an SQLite file has neither";
            return Err(UsageError::new(message));
        }
        if let (StoreUrl::Redis(_), Some(_)) =
            (&store, flags.schema.as_ref().or(flags.grant_to.as_ref()))
        {
            let message = "--schema and --grant-to are for PostgreSQL; Redis has a prefix: write \
                           prefix=NAME in the address";
            return Err(UsageError::new(message));
        }
        if let (StoreUrl::Mysql(_), Some(_)) = (&store, &flags.schema) {
            let message =
                "--schema is for PostgreSQL; the tables are in the database of the address";
            return Err(UsageError::new(message));
        }
        if let (StoreUrl::Dynamodb(_), true) =
            (&store, flags.schema.is_some() || flags.grant_to.is_some() || flags.dump)
        {
            let message = "--schema, --grant-to and --dump are for SQL; a DynamoDB table is the \
                           whole of a store, and rights to it are given by IAM";
            return Err(UsageError::new(message));
        }
        let named = flags.schema.or_else(|| store.parameter("schema").map(str::to_owned));
        let schema = match &named {
            Some(name) => SchemaName::new(name)
                .map_err(|error| UsageError::new(format!("--schema: {error}")))?,
            None => SchemaName::default(),
        };
        if matches!(store, StoreUrl::Postgres(_)) {
            store = store.with_parameter("schema", schema.as_str());
        }
        let effect = if flags.dump { Effect::Dump } else { Effect::Apply };
        Ok(Self { store, schema, grant_to: flags.grant_to, effect })
    }
}

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Exit> {
    match (&settings.store, settings.effect) {
        (StoreUrl::Sqlite(_), Effect::Dump) => output::data(SqliteStore::schema())?,
        (StoreUrl::Redis(_), Effect::Dump) => {
            output::data("nothing to print: Redis has no tables\n")?;
        }
        (url @ StoreUrl::Sqlite(_), Effect::Apply) => create(url, "the file")?,
        (url @ StoreUrl::Redis(_), Effect::Apply) => create(url, "the store")?,
        (url @ StoreUrl::Mysql(_), Effect::Apply) => {
            create(url, "the schema")?;
            if let Some(user) = &settings.grant_to {
                opening::runtime()?.block_on(grant_mysql(&url.address(), user))?;
            }
        }
        (url @ StoreUrl::Dynamodb(_), Effect::Apply | Effect::Dump) => create(url, "the table")?,
        (StoreUrl::Postgres(_), Effect::Dump) => {
            let mut sql = PostgresStore::dump(&settings.schema);
            if let Some(role) = &settings.grant_to {
                sql.push_str(&PostgresStore::grants(&settings.schema, role));
            }
            output::data(&sql)?;
        }
        (StoreUrl::Postgres(url), Effect::Apply) => {
            opening::runtime()?.block_on(apply(url, settings))?;
        }
        (StoreUrl::Mysql(url), Effect::Dump) => {
            let mut sql = MysqlStore::dump();
            if let Some(user) = &settings.grant_to {
                sql.push_str(&MysqlStore::grants(url, user).map_err(|error| unopened(&error))?);
            }
            output::data(&sql)?;
        }
    }
    Ok(Exit::Done)
}

/// Creates the store or brings it up to date, and says which.
fn create(url: &StoreUrl, what: &str) -> anyhow::Result<()> {
    let created = opening::runtime()?.block_on(firstwrite_store::create(&url.address()));
    say(what, created.map_err(|error| unopened(&error))?)
}

fn say(what: &str, migrated: Migrated) -> anyhow::Result<()> {
    output::data(&match (migrated.from, migrated.to) {
        (0, to) => format!("created {what}, version {to}\n"),
        (from, to) if from == to => format!("{what} is at version {to}; nothing to do\n"),
        (from, to) => format!("brought {what} from version {from} to {to}\n"),
    })
}

async fn grant_mysql(url: &str, user: &str) -> anyhow::Result<()> {
    let opened = MysqlStore::connect(url).await.map_err(|error| unopened(&error))?;
    let granted = async {
        let mut connection = opened.own_pool().get_conn().await?;
        connection.query_drop(MysqlStore::grants(url, user)?).await?;
        anyhow::Ok(())
    };
    granted.await.with_context(|| {
        format!(
            "cannot let {user} use the tables; make the user first (CREATE USER) and check \
             your rights"
        )
    })?;
    opened.close().await;
    output::data(&format!("{user} may use it\n"))
}

async fn apply(url: &str, settings: &Settings) -> anyhow::Result<()> {
    let Settings { schema, grant_to, .. } = settings;
    let migrated = PostgresStore::migrate(url, PostgresOptions::default()).await;
    say(&format!("schema {schema}"), migrated.map_err(|error| unopened(&error))?)?;
    if let Some(role) = grant_to {
        let opened = PostgresStore::connect(url).await.map_err(|error| unopened(&error))?;
        let granted = async {
            opened.pool().get().await?.batch_execute(&PostgresStore::grants(schema, role)).await?;
            anyhow::Ok(())
        };
        granted.await.with_context(|| {
            format!("cannot let {role} use schema {schema}; check the role's name and your rights")
        })?;
        opened.close().await;
        output::data(&format!("{role} may use it\n"))?;
    }
    Ok(())
}
