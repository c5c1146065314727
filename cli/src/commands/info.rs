//! `dat info`: the attributes of an adapter and of its provider.

use std::process::ExitCode;

use dat::registry::Step;
use dat::{IaAttr, ProviderAttr};
use serde_json::{Map, Value, json};

use crate::failure::Outcome;
use crate::output::{Shared, Table};

/// Opens, shows, closes.
pub fn run(shared: &Shared, name: &str) -> Outcome<ExitCode> {
    let ia = shared.ia(name).open()?;
    let describe = ia.describe()?;
    let adapter = adapter(&ia.attr()?);
    let provider = provider(&ia.provider_attr()?);
    let steps = ia.steps();
    shared.print(
        || json!({ "name": ia.name(), "describe": describe, "adapter": adapter, "provider": provider, "steps": steps }),
        || text(ia.name(), &describe, steps, &adapter, &provider),
    )?;
    Ok(ExitCode::SUCCESS)
}

/// The attributes of the adapter, by the names of the specification.
fn adapter(attr: &IaAttr) -> Value {
    json!({
        "adapter_name": attr.adapter_name,
        "vendor_name": attr.vendor_name,
        "address": attr.address,
        "max_eps": attr.max_eps,
        "max_dto_per_ep": attr.max_dto_per_ep,
        "max_rdma_read_per_ep_in": attr.max_rdma_read_per_ep_in,
        "max_rdma_read_per_ep_out": attr.max_rdma_read_per_ep_out,
        "max_evds": attr.max_evds,
        "max_evd_qlen": attr.max_evd_qlen,
        "max_iov_segments_per_dto": attr.max_iov_segments_per_dto,
        "max_iov_segments_per_rdma_read": attr.max_iov_segments_per_rdma_read,
        "max_iov_segments_per_rdma_write": attr.max_iov_segments_per_rdma_write,
        "max_lmrs": attr.max_lmrs,
        "max_lmr_block_size": attr.max_lmr_block_size,
        "max_pzs": attr.max_pzs,
        "max_message_size": attr.max_message_size,
        "max_rdma_size": attr.max_rdma_size,
        "max_rmrs": attr.max_rmrs,
        "max_srqs": attr.max_srqs,
    })
}

/// The attributes of the provider, likewise.
fn provider(attr: &ProviderAttr) -> Value {
    let own: Map<String, Value> =
        attr.provider_specific.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let flags = attr.completion_flags_supported.iter_names().map(|(name, _)| name);
    let mem_types = attr.lmr_mem_types_supported.iter_names().map(|(name, _)| name);
    json!({
        "provider_name": attr.provider_name,
        "provider_version": attr.provider_version,
        "lmr_mem_types_supported": mem_types.collect::<Vec<_>>(),
        "qos_supported": attr.qos_supported.0,
        "completion_flags_supported": flags.collect::<Vec<_>>(),
        "is_thread_safe": attr.is_thread_safe,
        "max_private_data_size": attr.max_private_data_size,
        "supports_multipath": attr.supports_multipath,
        "ep_creator": format!("{:?}", attr.ep_creator),
        "optimal_buffer_alignment": attr.optimal_buffer_alignment,
        "srq_supported": attr.srq_supported,
        "lmr_sync_req": attr.lmr_sync_req,
        "dto_async_return_guaranteed": attr.dto_async_return_guaranteed,
        "is_signal_safe": attr.is_signal_safe,
        "provider_specific": own,
    })
}

fn text(name: &str, describe: &str, steps: &[Step], adapter: &Value, provider: &Value) -> String {
    let mut text = format!("{name}: {describe}\n");
    if steps.len() > 1 {
        for step in steps {
            let how = if step.opened { "opened" } else { "did not open" };
            text.push_str(&format!("  {} {how}: {}\n", step.name, step.reason));
        }
    }
    text.push_str("\nadapter\n");
    text.push_str(&section(adapter));
    text.push_str("\nprovider\n");
    text.push_str(&section(provider));
    text
}

/// Name and value, a line each; what is nested goes one level in.
fn section(value: &Value) -> String {
    let Some(fields) = value.as_object() else { return String::new() };
    let mut table = Table::new(&["", "", ""], usize::MAX);
    for (name, value) in fields {
        match value {
            Value::Object(own) => {
                own.iter()
                    .for_each(|(name, value)| table.row(vec![String::new(), name.clone(), plain(value)]));
            }
            value => table.row(vec![String::new(), name.clone(), plain(value)]),
        }
    }
    table.text().trim_start_matches('\n').to_owned()
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "none".into(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}
