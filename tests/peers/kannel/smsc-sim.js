// A small SMSC on loopback for Kannel's SMPP driver: the last two digits of the
// destination number choose what happens to a message (table in README.md).
// usage: node smsc-sim.js PORT [LOGFILE]      needs: npm install smpp@0.5.1
'use strict';
const smpp = require('smpp'), fs = require('fs');
const port = Number(process.argv[2] || 23003), logfile = process.argv[3];
const SLOW = Number(process.env.SIM_LATE_MS || 5000);
const CODE = { DELIVRD: 2, EXPIRED: 3, DELETED: 4, UNDELIV: 5, ACCEPTD: 6, UNKNOWN: 7, REJECTD: 8, ENROUTE: 1 };
// [ms after the submit answer, stat word, GSM error, how: 'text' (default) or 'tlv']
const PLAN = {
  '00': [[50, 'DELIVRD', 0]], '01': [[50, 'UNDELIV', 1]], '02': [[50, 'EXPIRED', 0, 'tlv']], '03': [[50, 'REJECTD', 8]],
  '04': [[50, 'ENROUTE', 0], [800, 'DELIVRD', 0]], '05': [[50, 'DELIVRD', 0], [800, 'ENROUTE', 0]],
  '06': [[50, 'DELIVRD', 0], [500, 'DELIVRD', 0]], '07': [], '10': [[SLOW, 'DELIVRD', 0]], '11': [[50, 'UNKNOWN', 0]],
  '12': [[-1, 'DELIVRD', 0]], '13': [[50, 'DELETED', 0]], '15': [[50, 'ACCEPTD', 0]], '16': [[50, 'DELIVRD', 0, 'badid']],
  '18': [[50, 'WHATEVR', 0]], '19': [[50, 'UNDELIV', 27, 'tlv']], '20': [[50, 'EXPIRED', 0]],
  '21': [[50, 'ENROUTE', 0], [600, 'UNDELIV', 1]], '22': [[50, 'UNDELIV', 1], [700, 'DELIVRD', 0]],
};
const REFUSE = { '08': smpp.ESME_RINVDSTADR, '23': smpp.ESME_RSUBMITFAIL, '24': smpp.ESME_RINVSRCADR };
let next = Number(process.env.SIM_FIRST_ID || 1000);
const seen = new Map();                                   // destination -> how many submits
const log = o => { const s = JSON.stringify({ at: Date.now() / 1000, ...o }) + '\n'; logfile ? fs.appendFileSync(logfile, s) : process.stdout.write(s); };
const stamp = () => new Date().toISOString().replace(/[-:T]/g, '').slice(2, 12);     // YYMMDDhhmm, UTC

function receipt(session, m, stat, err, how) {
  const id = how === 'badid' ? 'no-such-' + m.id : m.id, e = String(err).padStart(3, '0');
  const pdu = { esm_class: 4, source_addr: m.to, destination_addr: m.from, source_addr_ton: 1, source_addr_npi: 1, data_coding: 0,
    short_message: `id:${id} sub:001 dlvrd:${stat === 'DELIVRD' ? '001' : '000'} submit date:${m.at} done date:${stamp()} stat:${stat} err:${e} text:` };
  if (how === 'tlv') {
    Object.assign(pdu, { receipted_message_id: id, message_state: CODE[stat], network_error_code: Buffer.from([3, err >> 8, err & 255]) });
  }
  log({ receipt: id, stat, err, how: how || 'text' });
  session.deliver_sm(pdu, r => log({ receipt_answered: id, status: r.command_status }));
}

const server = smpp.createServer(session => {
  session.on('error', () => {});
  const bind = pdu => session.send(pdu.response({ system_id: 'SIM' }));
  for (const b of ['bind_transceiver', 'bind_transmitter', 'bind_receiver']) session.on(b, bind);
  session.on('enquire_link', pdu => session.send(pdu.response()));
  session.on('unbind', pdu => { session.send(pdu.response()); session.close(); });
  session.on('submit_sm', pdu => {
    const to = pdu.destination_addr, key = to.slice(-2), n = (seen.get(to) || 0) + 1, m = { id: String(next++), to, from: pdu.source_addr, at: stamp() };
    seen.set(to, n);
    log({ submit: m.id, to, n, text: String(pdu.short_message.message), validity: pdu.validity_period, data_coding: pdu.data_coding, esm_class: pdu.esm_class, registered_delivery: pdu.registered_delivery });
    if (key === '14') return;                                                  // never answered
    if (key === '17' && n === 1) { setTimeout(() => session.destroy(), 100); return; }       // taken, then the line drops
    if (key === '09' && n === 1) return session.send(pdu.response({ command_status: smpp.ESME_RTHROTTLED }));
    if (key === '25') return session.send(pdu.response({ command_status: smpp.ESME_RMSGQFUL }));        // always busy
    if (REFUSE[key]) return session.send(pdu.response({ command_status: REFUSE[key] }));
    const plan = pdu.registered_delivery & 3 ? (PLAN[key] || PLAN['00']) : [];
    for (const [ms, stat, err, how] of plan) ms < 0 ? receipt(session, m, stat, err, how) : setTimeout(() => receipt(session, m, stat, err, how), ms);
    session.send(pdu.response({ message_id: m.id }));
    // Whoever has such a number sends back what they got, as they got it.
    if (key === '30') session.deliver_sm({ source_addr: to, destination_addr: pdu.source_addr, source_addr_ton: 1, source_addr_npi: 1,
      data_coding: pdu.data_coding, short_message: pdu.short_message }, r => log({ answered: to, status: r.command_status }));
  });
});
server.listen(port, '127.0.0.1', () => log({ listening: port }));
