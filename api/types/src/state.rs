//! States of an endpoint (spec: endpoint).

use crate::Subtype;

/// `DAT_EP_STATE`. The values are those of the public headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EpState {
    /// Idle; where every endpoint starts.
    Unconnected = 0,
    /// Never produced by this project (decision D-05).
    UnconfiguredUnconnected = 1,
    /// Tied to a reserved service point, no request yet.
    Reserved = 2,
    /// Never produced by this project (decision D-05).
    UnconfiguredReserved = 3,
    /// The reserved service point's request has arrived.
    PassiveConnectionPending = 4,
    /// Never produced by this project (decision D-05).
    UnconfiguredPassive = 5,
    /// Connect issued, no outcome yet.
    ActiveConnectionPending = 6,
    /// Made by the provider for a request at a public service point.
    TentativeConnectionPending = 7,
    /// Never produced by this project (decision D-05).
    UnconfiguredTentative = 8,
    /// Data transfer is possible.
    Connected = 9,
    /// Graceful disconnect, requests still draining.
    DisconnectPending = 10,
    /// The connection is over, or never came to be.
    Disconnected = 11,
    /// Accept issued, not finished.
    CompletionPending = 12,
    /// Connected, one path of several left (multipath providers).
    ConnectedSinglePath = 13,
    /// Connected over several paths (multipath providers).
    ConnectedMultiPath = 14,
}

impl EpState {
    /// The states this project's endpoints can be in, in the order of the specification's matrix.
    pub const USED: [EpState; 9] = [
        EpState::Unconnected,
        EpState::Reserved,
        EpState::PassiveConnectionPending,
        EpState::TentativeConnectionPending,
        EpState::ActiveConnectionPending,
        EpState::CompletionPending,
        EpState::Connected,
        EpState::DisconnectPending,
        EpState::Disconnected,
    ];

    /// The three letters the specification uses.
    pub const fn short(self) -> &'static str {
        match self {
            EpState::Unconnected | EpState::UnconfiguredUnconnected => "UNC",
            EpState::Reserved | EpState::UnconfiguredReserved => "RES",
            EpState::PassiveConnectionPending | EpState::UnconfiguredPassive => "PAS",
            EpState::TentativeConnectionPending | EpState::UnconfiguredTentative => "TEN",
            EpState::ActiveConnectionPending => "ACT",
            EpState::CompletionPending => "CMP",
            EpState::Connected | EpState::ConnectedSinglePath | EpState::ConnectedMultiPath => "CON",
            EpState::DisconnectPending => "DPN",
            EpState::Disconnected => "DIS",
        }
    }

    /// The name without the `DAT_EP_STATE_` prefix.
    pub const fn name(self) -> &'static str {
        match self {
            EpState::Unconnected => "UNCONNECTED",
            EpState::UnconfiguredUnconnected => "UNCONFIGURED_UNCONNECTED",
            EpState::Reserved => "RESERVED",
            EpState::UnconfiguredReserved => "UNCONFIGURED_RESERVED",
            EpState::PassiveConnectionPending => "PASSIVE_CONNECTION_PENDING",
            EpState::UnconfiguredPassive => "UNCONFIGURED_PASSIVE",
            EpState::ActiveConnectionPending => "ACTIVE_CONNECTION_PENDING",
            EpState::TentativeConnectionPending => "TENTATIVE_CONNECTION_PENDING",
            EpState::UnconfiguredTentative => "UNCONFIGURED_TENTATIVE",
            EpState::Connected => "CONNECTED",
            EpState::DisconnectPending => "DISCONNECT_PENDING",
            EpState::Disconnected => "DISCONNECTED",
            EpState::CompletionPending => "COMPLETION_PENDING",
            EpState::ConnectedSinglePath => "CONNECTED_SINGLE_PATH",
            EpState::ConnectedMultiPath => "CONNECTED_MULTI_PATH",
        }
    }

    /// The subtype of `DAT_INVALID_STATE` that names this state.
    pub const fn subtype(self) -> Subtype {
        match self {
            EpState::Unconnected => Subtype::EpUnconnected,
            EpState::UnconfiguredUnconnected => Subtype::EpUnconfigured,
            EpState::Reserved => Subtype::EpReserved,
            EpState::UnconfiguredReserved => Subtype::EpUnconfReserved,
            EpState::PassiveConnectionPending => Subtype::EpPassConnPending,
            EpState::UnconfiguredPassive => Subtype::EpUnconfPassive,
            EpState::ActiveConnectionPending => Subtype::EpActConnPending,
            EpState::TentativeConnectionPending => Subtype::EpTentConnPending,
            EpState::UnconfiguredTentative => Subtype::EpUnconfTentative,
            EpState::Connected | EpState::ConnectedSinglePath | EpState::ConnectedMultiPath => {
                Subtype::EpConnected
            }
            EpState::DisconnectPending => Subtype::EpDiscPending,
            EpState::Disconnected => Subtype::EpDisconnected,
            EpState::CompletionPending => Subtype::EpComplPending,
        }
    }
}

impl std::fmt::Display for EpState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
