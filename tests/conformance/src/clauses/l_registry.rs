//! L. Names and files of the registry. What concerns the entry points of uDAPL's C registry is the C library's.

use dat_registry::Registry;

use super::prelude::*;

clauses! {
    334 "a name nobody configured: PROVIDER_NOT_FOUND (NAME_NOT_REGISTERED)" => unknown_name;
    339 "a name of 256 bytes: INVALID_PARAMETER" => long_name;
    354 "a malformed line between good ones: the good ones are there" => malformed_line;
}

fn registry() -> Result<Registry, Stop> {
    let text = "[provider.known0]\nlibrary = \"libdat_known.so\"\n";
    Registry::from_str("plugins.toml", text).map_err(|error| Stop::Failed(error.to_string()))
}

fn opened(name: &str) -> Result<dat_types::Result<()>, Stop> {
    Ok(registry()?.open_device(name).map(|_| ()).map_err(dat_types::Error::from))
}

fn unknown_name(t: &Bench) -> Outcome {
    let result = opened("unknown0")?;
    let subtype = result.as_ref().err().and_then(|error| error.code().subtype());
    t.refused("an unknown name", result, ReturnType::ProviderNotFound)?;
    same("subtype", subtype, Some(Subtype::NameNotRegistered))?;
    // A known name whose library is not there is another matter.
    let result = opened("known0")?;
    let subtype = result.as_ref().err().and_then(|error| error.code().subtype());
    t.refused("a missing library", result, ReturnType::ProviderNotFound)?;
    holds(subtype != Some(Subtype::NameNotRegistered), "a missing library is told as an unknown name")
}

fn long_name(t: &Bench) -> Outcome {
    t.refused("256 bytes", opened(&"n".repeat(256))?, ReturnType::InvalidParameter)?;
    t.refused("no name", opened("")?, ReturnType::InvalidParameter)?;
    t.refused("255 bytes, unknown", opened(&"n".repeat(255))?, ReturnType::ProviderNotFound)
}

fn malformed_line(_t: &Bench) -> Outcome {
    let text = "# a comment\n\
                one0 u2.0 threadsafe default libone.so.2 one.2.0 \"a b\" \"\"\n\
                this line is nonsense\n\
                two0 u2.0 threadsafe default libtwo.so.2 two.2.0 \"\" \"\"\n\
                kernel0 k2.0 threadsafe default libk.so.2 k.2.0 \"\" \"\"\n";
    let (entries, diagnostics) = Registry::import_dat_conf(text, "dat.conf");
    let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    same("names", names, vec!["one0", "two0"])?;
    let told = diagnostics.iter().any(|remark| remark.location.line == 3);
    holds(told, format!("nobody says that line 3 is malformed: {diagnostics:?}"))
}
