//! Names and files of the registry. The C library's tests cover the entry points of uDAPL's C registry.

use dat_registry::Registry;

use crate::clauses::prelude::*;

clauses! {
    334 "An unknown name: PROVIDER_NOT_FOUND, NAME_NOT_REGISTERED" => unknown_name;
    339 "A name of 256 bytes: INVALID_PARAMETER" => long_name;
    354 "A malformed line between good ones is skipped" => malformed_line;
}

fn registry() -> Result<Registry, Stop> {
    let text = "[provider.known0]\nlibrary = \"libdat_known.so\"\n";
    Registry::from_str("plugins.toml", text).map_err(|error| Stop::Failed(error.to_string()))
}

fn opened(name: &str) -> Result<dat_types::Result<()>, Stop> {
    Ok(registry()?.open_device(name).map(|_| ()).map_err(dat_types::Error::from))
}

fn unknown_name(t: &TestContext) -> Outcome {
    let result = opened("unknown0")?;
    let subtype = result.as_ref().err().and_then(|error| error.code().subtype());
    t.refused("an unknown name", result, ReturnType::ProviderNotFound)?;
    ensure_eq("subtype", subtype, Some(Subtype::NameNotRegistered))?;
    // A known name whose library is not there is another matter.
    let result = opened("known0")?;
    let subtype = result.as_ref().err().and_then(|error| error.code().subtype());
    t.refused("a missing library", result, ReturnType::ProviderNotFound)?;
    ensure(subtype != Some(Subtype::NameNotRegistered), "a missing library is reported as an unknown name")
}

fn long_name(t: &TestContext) -> Outcome {
    t.refused("256 bytes", opened(&"n".repeat(256))?, ReturnType::InvalidParameter)?;
    t.refused("no name", opened("")?, ReturnType::InvalidParameter)?;
    t.refused("255 bytes, unknown", opened(&"n".repeat(255))?, ReturnType::ProviderNotFound)
}

fn malformed_line(_t: &TestContext) -> Outcome {
    let text = "# a comment\n\
                one0 u2.0 threadsafe default libone.so.2 one.2.0 \"a b\" \"\"\n\
                this line is nonsense\n\
                two0 u2.0 threadsafe default libtwo.so.2 two.2.0 \"\" \"\"\n\
                kernel0 k2.0 threadsafe default libk.so.2 k.2.0 \"\" \"\"\n";
    let (entries, diagnostics) = Registry::import_dat_conf(text, "dat.conf");
    let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    ensure_eq("names", names, vec!["one0", "two0"])?;
    let reported = diagnostics.iter().any(|remark| remark.location.line == 3);
    ensure(reported, format!("no diagnostic for the malformed line 3: {diagnostics:?}"))
}
