//! Declarations as C.

use std::fmt::Write as _;

use super::parse::{Source, Struct, Type};

type Result<T> = std::result::Result<T, String>;

/// Structures that are not the author's to see, or are printed under another name.
const RENAMED: [(&str, &str); 3] =
    [("CModule", "module"), ("RawConfig", "config"), ("RawConnect", "connect")];

/// Tables, and the trait that says what their functions do.
const TRAITS: [(&str, &str); 7] = [
    ("ProviderOps", "Provider"),
    ("DeviceOps", "Device"),
    ("ChannelOps", "Channel"),
    ("QueueOps", "Queue"),
    ("ListenerOps", "Listener"),
    ("SrqOps", "Srq"),
    ("ProbeOps", "Provider"),
];

const HEAD: &str = "\
/*
 * dat_plugin.h - the interface between DAT and a provider plugin written in C.
 *
 * Printed from api/plugin/src by `cargo xtask docs`; do not edit. What a provider must do is told in
 * docs/plugin-authors.md; examples/provider_c is one. In short: make the tables, return them from
 * dat_plugin_c_root(), write DATP_NOTE(...) once at file level, link a shared object.
 *
 * Every table leads with its size. No entry may be null: what a provider does not have answers
 * DATP_STATUS_NOT_SUPPORTED. Every function may be called from any thread; a function must not unwind, longjmp or exit.
 */
#ifndef DAT_PLUGIN_H
#define DAT_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern \"C\" {
#endif

";

const TAIL: &str = "\
/* The one symbol a plugin exports. The module and all it leads to are constant and live as long as the process. */
const struct datp_module *dat_plugin_c_root(void);

/*
 * Says what the file is, readable without running any of it. Once in a plugin, at file level; `name_` and `version_` are
 * string literals of at most 31 bytes, `caps_` the capabilities its devices can have at most.
 */
#define DATP_NOTE(name_, version_, caps_)                                                      \\
    __attribute__((section(\".note.dat.plugin\"), used, aligned(4)))                             \\
    static const struct datp_note datp_note_of_plugin = {                                      \\
        4, (uint32_t)(sizeof(struct datp_note) - 16), 1, { 'D', 'A', 'T', 0 },                 \\
        DATP_ABI_MAJOR, DATP_ABI_MINOR, name_, version_, 1, 0,                                 \\
        { (uint32_t)((caps_) & 0xFFFFFFFFu), (uint32_t)((uint64_t)(caps_) >> 32) },            \\
    }

#ifdef __cplusplus
}
#endif

#endif
";

/// The whole header.
pub fn header(source: &Source) -> Result<String> {
    let mut out = String::from(HEAD);
    for name in ["ABI_MAJOR", "ABI_MINOR", "MAX_PRIVATE_DATA"] {
        let (docs, value) = source.consts.get(name).ok_or_else(|| format!("there is no {name}"))?;
        comment(&mut out, docs, "");
        let _ = writeln!(out, "#define DATP_{name} {value}\n");
    }
    for numbers in &source.numbers {
        let name = snake(&numbers.name);
        comment(&mut out, &numbers.docs, "");
        let _ = writeln!(out, "typedef {} datp_{name};", int(&numbers.int).unwrap_or(&numbers.int));
        for (constant, docs, value) in &numbers.values {
            comment(&mut out, docs, "");
            let _ = writeln!(out, "#define DATP_{}_{constant} ((datp_{name})({value}))", name.to_uppercase());
        }
        out.push('\n');
    }
    out.push_str(
        "/* An object of the plugin's, which only the plugin looks into. */\ntypedef void *datp_ctx;\n\n",
    );
    let mut printed = Vec::new();
    for of in source.structs.iter().filter(|of| of.name != "PluginModule") {
        structure(&mut out, source, of, &mut printed)?;
    }
    out.push_str(TAIL);
    Ok(out)
}

/// After the structures it holds or points to: C reads from top to bottom.
fn structure<'a>(
    out: &mut String,
    source: &'a Source,
    of: &'a Struct,
    printed: &mut Vec<&'a str>,
) -> Result<()> {
    if printed.contains(&of.name.as_str()) {
        return Ok(());
    }
    printed.push(&of.name);
    for field in &of.fields {
        for name in mentioned(&field.of) {
            if let Some(other) = source.structs.iter().find(|other| other.name == name) {
                structure(out, source, other, printed)?;
            }
        }
    }
    comment(out, &of.docs, "");
    let _ = writeln!(out, "struct datp_{} {{", c_name(&of.name));
    let of_trait = TRAITS.iter().find(|(table, _)| *table == of.name).map(|(_, name)| *name);
    for field in &of.fields {
        let method = of_trait.and_then(|name| source.methods.get(&(name.into(), field.name.clone())));
        let docs: Vec<String> = method.into_iter().chain([&field.docs]).flatten().cloned().collect();
        comment(out, &docs, "    ");
        let name = if field.name == "register" { "register_" } else { &field.name };
        let declared =
            declare(source, &field.of, name).map_err(|what| format!("{}.{}: {what}", of.name, field.name))?;
        let _ = writeln!(out, "    {};", wrapped(&declared));
    }
    out.push_str("};\n\n");
    Ok(())
}

/// The names in a type.
fn mentioned(of: &Type) -> Vec<&str> {
    match of {
        Type::Named(name) => vec![name],
        Type::Pointer { to: inner, .. } | Type::Array { of: inner, .. } => mentioned(inner),
        Type::Function { arguments, result } => {
            let arguments = arguments.iter().flat_map(|(_, of)| mentioned(of));
            arguments.chain(result.iter().flat_map(|of| mentioned(of))).collect()
        }
    }
}

/// A declaration, on more lines if it is a long one.
fn wrapped(declared: &str) -> String {
    let (mut lines, mut last) = (String::new(), String::new());
    for part in declared.split_inclusive(", ") {
        if last.len() + part.trim_end().len() > 110 {
            lines.push_str(last.trim_end());
            lines.push_str("\n        ");
            last.clear();
        }
        last.push_str(part);
    }
    lines + &last
}

/// `of name`, as C has it.
fn declare(source: &Source, of: &Type, name: &str) -> Result<String> {
    Ok(match of {
        Type::Named(type_name) => format!("{} {name}", base(source, type_name)?),
        Type::Pointer { constant, to } => match &**to {
            Type::Named(type_name) => {
                let constant = if *constant { "const " } else { "" };
                format!("{constant}{} *{name}", base(source, type_name)?)
            }
            other => return Err(format!("a pointer to {other:?} is not known")),
        },
        Type::Array { of, count } => {
            let count = match source.consts.get(count) {
                Some(_) if count == "MAX_PRIVATE_DATA" => "DATP_MAX_PRIVATE_DATA".to_owned(),
                Some((_, value)) => value.clone(),
                None => count.clone(),
            };
            // Texts of the note are written as literals.
            let text = count == "32" && **of == Type::Named("u8".into());
            match text {
                true => format!("char {name}[{count}]"),
                false => format!("{}[{count}]", declare(source, of, name)?),
            }
        }
        Type::Function { arguments, result } => {
            let result = match result {
                None => "void".to_owned(),
                Some(of) => declare(source, of, "")?.trim_end().to_owned(),
            };
            let list: Result<Vec<String>> =
                arguments.iter().map(|(name, of)| declare(source, of, name)).collect();
            let gap = if result.ends_with('*') { "" } else { " " };
            format!("{result}{gap}(*{name})({})", list?.join(", "))
        }
    })
}

fn base(source: &Source, name: &str) -> Result<String> {
    if let Some(int) = int(name) {
        return Ok(int.to_owned());
    }
    if name == "c_void" {
        return Ok("void".into());
    }
    if name == "Ctx" || source.numbers.iter().any(|numbers| numbers.name == name) {
        return Ok(format!("datp_{}", snake(name)));
    }
    match source.structs.iter().any(|of| of.name == name) {
        true => Ok(format!("struct datp_{}", c_name(name))),
        false => Err(format!("the type {name} is not known")),
    }
}

fn int(name: &str) -> Option<&'static str> {
    let known = [
        ("u8", "uint8_t"),
        ("u16", "uint16_t"),
        ("u32", "uint32_t"),
        ("u64", "uint64_t"),
        ("i32", "int32_t"),
        ("usize", "size_t"),
    ];
    known.iter().find(|(rust, _)| *rust == name).map(|(_, c)| *c)
}

fn c_name(name: &str) -> String {
    RENAMED.iter().find(|(rust, _)| *rust == name).map_or_else(|| snake(name), |(_, c)| (*c).to_owned())
}

/// `DeviceOps` as `device_ops`.
fn snake(name: &str) -> String {
    let mut out = String::new();
    for (at, c) in name.chars().enumerate() {
        if c.is_uppercase() && at > 0 {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}

/// Documentation as a comment, with links to items as plain names, wrapped anew.
fn comment(out: &mut String, docs: &[String], indent: &str) {
    let text = docs.join("\n");
    let text = text.split("\n\n").next().map(plain).unwrap_or_default();
    if text.is_empty() {
        return;
    }
    let room = 116 - indent.len();
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().map_or(0, |line| line.chars().count());
        if last > 0 && last + 1 + word.chars().count() > room {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    let joint = format!("\n{indent} * ");
    let _ = writeln!(out, "{indent}/* {} */", lines.join(&joint));
}

/// `[`crate::Caps::ALLOC`]` as `Caps::ALLOC`.
fn plain(text: &str) -> String {
    text.replace("[`", "").replace("`]", "").replace('`', "").replace("crate::", "").replace("*/", "* /")
}
