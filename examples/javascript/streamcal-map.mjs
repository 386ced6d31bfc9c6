// Reads a streamcal map document and applies it to scores: docs/map-format.md in plain JavaScript, Node 18 or newer.
//
//   import { compile } from './streamcal-map.mjs'
//   const map = compile(record.value.toString('utf8'))
//   const calibrated = map.apply(0.3, { country: 'GB', device: 'ios' })   // log map.version with it
//
// compile() throws a MapError for whatever must not be applied; keep the last good map then. Families without
// logarithms give the same bits as Python, the others the same but for the last places.
//
// Where maps are signed, say whose signatures count:
//
//   const accepts = verifier([readFileSync('maps.pub', 'utf8')])
//   const map = compile(record.value.toString('utf8'), { accepts, key: record.key.toString('utf8') })

import { createHash, createHmac, createPublicKey, timingSafeEqual, verify as verifyEd25519 } from 'node:crypto'

const SCHEMA_VERSION = 1
const LOWEST = 1e-7
const HIGHEST = 1 - 1e-7
const TINY = 2 ** -1022
const BELOW_ONE = 1 - 2 ** -53
const STEEPEST = 700
const MISSING = '__missing__'
// What Python's str.strip() takes for white space; JavaScript's trim() knows another set.
const SPACE = '[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]+'
const OUTER_SPACE = new RegExp(`^${SPACE}|${SPACE}$`, 'g')

const FIELDS = [
  'at_ms', 'counts', 'evidence', 'family', 'fit_window', 'hash', 'model', 'parameters', 'parent', 'product_version',
  'schema_version', 'segments', 'version',
]

export class MapError extends Error {}

function check(condition, message) {
  if (!condition) throw new MapError(message)
}

const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value)
const isNumber = (value) => typeof value === 'number' && Number.isFinite(value)
const isCount = (value) => Number.isSafeInteger(value) && value >= 0

// --- link -----------------------------------------------------------------------------------------------------

const clip = (p) => Math.min(Math.max(p, LOWEST), HIGHEST)
const inside = (p) => Math.min(Math.max(p, TINY), BELOW_ONE)
const logit = (p) => Math.log(p / (1 - p))
const sigmoid = (z) => Math.min(1 / (1 + Math.exp(Math.min(-z, STEEPEST))), BELOW_ONE)

// --- families -------------------------------------------------------------------------------------------------

function numbers(parameters, ...names) {
  const given = Object.keys(parameters).sort().join()
  check(given === [...names].sort().join(), `parameters ${given} are not ${names}`)
  for (const name of names) check(isNumber(parameters[name]), `${name} is not a number`)
  return names.map((name) => parameters[name])
}

function lists(parameters, xName, yName, xRange, yRange) {
  const given = Object.keys(parameters).sort().join()
  check(given === [xName, yName].sort().join(), `parameters ${given} are not ${xName} and ${yName}`)
  for (const [name, [low, high]] of [[xName, xRange], [yName, yRange]]) {
    const values = parameters[name]
    check(Array.isArray(values), `${name} is no list`)
    check(values.every((value) => isNumber(value) && low <= value && value <= high), `${name} out of range`)
  }
  const [x, y] = [parameters[xName], parameters[yName]]
  check(x.length === y.length && x.length > 0, 'the lists are empty or of different lengths')
  for (let i = 1; i < x.length; i++) check(x[i] > x[i - 1] && y[i] >= y[i - 1], `knot ${i} does not ascend`)
  return [x, y]
}

function curve(x, y, endSlope) {
  const last = x.length - 1
  const slope = x.map((_, i) => (i === last ? endSlope : (y[i + 1] - y[i]) / (x[i + 1] - x[i])))
  check(slope.every(Number.isFinite), 'knots so close together that the slope between them is not finite')
  return (at) => {
    let low = 0 // how many knots lie at or below `at`
    let high = x.length
    while (low < high) {
      const middle = (low + high) >>> 1
      if (x[middle] <= at) low = middle + 1
      else high = middle
    }
    if (low === 0) return Math.min((at - x[0]) * endSlope + y[0], y[0])
    const value = (at - x[low - 1]) * slope[low - 1] + y[low - 1]
    return low <= last ? Math.min(value, y[low]) : value
  }
}

function steps(parameters) {
  const [x, y] = lists(parameters, 'scores', 'values', [LOWEST, HIGHEST], [TINY, BELOW_ONE])
  check(y[0] < y[y.length - 1], 'one value for all')
  return curve(x, y, 0)
}

function line(parameters) {
  const [slope, intercept] = numbers(parameters, 'slope', 'intercept')
  check(slope > 0, 'the slope is not above 0')
  return (q) => sigmoid(logit(q) * slope + intercept)
}

// Family to a function from its parameters to a function of the clipped score.
const FAMILIES = {
  identity: (parameters) => {
    numbers(parameters)
    return (q) => q
  },
  prior: (parameters) => {
    if ('positive_weight' in parameters) {
      const [weight] = numbers(parameters, 'positive_weight')
      check(weight > 0, 'the weight is not above 0')
      return (q) => inside(q / (q + (1 - q) * weight))
    }
    const [rate] = numbers(parameters, 'negative_sampling_rate')
    check(rate > 0 && rate <= 1, 'the rate is not in (0, 1]')
    return (q) => inside(q / (q + (1 - q) / rate))
  },
  intercept: (parameters) => {
    const [intercept] = numbers(parameters, 'intercept')
    return (q) => sigmoid(logit(q) + intercept)
  },
  temperature: (parameters) => {
    const [temperature] = numbers(parameters, 'temperature')
    check(temperature > 0, 'the temperature is not above 0')
    return (q) => sigmoid(logit(q) / temperature)
  },
  platt: line,
  tracking: line,
  beta: (parameters) => {
    const [a, b, c] = numbers(parameters, 'a', 'b', 'c')
    check(a >= 0 && b >= 0 && a + b > 0, 'a or b is below 0, or both are 0')
    return (q) => sigmoid(Math.log(q) * a - Math.log(1 - q) * b + c)
  },
  isotonic: steps,
  girb: steps,
  cir: (parameters) => {
    const [x, y] = lists(parameters, 'logits', 'served_logits', [-STEEPEST, STEEPEST], [-STEEPEST, STEEPEST])
    for (let i = 1; i < y.length; i++) check(y[i] > y[i - 1], 'served_logits do not ascend strictly')
    const at = curve(x, y, 1)
    return (q) => sigmoid(at(logit(q)))
  },
}

// --- segments -------------------------------------------------------------------------------------------------

const coded = (text) => text.replaceAll('%', '%25').replaceAll(',', '%2C').replaceAll('=', '%3D')
const plain = (text) => text.replaceAll('%2C', ',').replaceAll('%3D', '=').replaceAll('%25', '%')

export function segmentValue(text) {
  const trimmed = text.normalize('NFC').replace(OUTER_SPACE, '')
  return Array.from(trimmed).slice(0, 64).join('').replace(OUTER_SPACE, '') || MISSING // 64 characters, not UTF-16 units
}

// By code points: JavaScript compares strings by UTF-16 units.
function compareNames(a, b) {
  for (let i = 0; i < Math.min(a.length, b.length); i++) {
    const [left, right] = [Array.from(a[i]), Array.from(b[i])]
    for (let j = 0; j < Math.min(left.length, right.length); j++) {
      const apart = left[j].codePointAt(0) - right[j].codePointAt(0)
      if (apart !== 0) return apart
    }
    if (left.length !== right.length) return left.length - right.length
  }
  return a.length - b.length
}

function segmentCuts(segments) {
  const cuts = new Map()
  for (const [key, entry] of Object.entries(segments)) {
    check(isObject(entry) && isNumber(entry.offset), `segment ${key} has no offset`)
    const { offset, slope = 1, ...rest } = entry
    check(Object.keys(rest).length === 0, `segment ${key} has unknown fields`)
    check(isNumber(slope) && slope > 0, `segment ${key} has a slope that is not above 0`)
    const pairs = key.split(',').map((part) => part.split('='))
    check(pairs.every((pair) => pair.length === 2 && pair[0] && pair[1]), `${key} is no segment`)
    const [names, values] = [0, 1].map((side) => pairs.map((pair) => plain(pair[side])))
    check(names.map((name, i) => `${coded(name)}=${coded(values[i])}`).join() === key, `${key} is no segment`)
    check(new Set(names).size === names.length, `segment ${key} names a dimension twice`)
    check(values.every((value) => segmentValue(value) === value), `segment ${key} has a value in another form`)
    const id = names.map(coded).join()
    if (!cuts.has(id)) cuts.set(id, { names, table: new Map() })
    cuts.get(id).table.set(values.map(coded).join(), { slope, offset })
  }
  // The finest first; between cuts of as many dimensions their names decide.
  return [...cuts.values()].sort((a, b) => b.names.length - a.names.length || compareNames(a.names, b.names))
}

function find(cuts, segments) {
  const given = (name) => (Object.hasOwn(segments, name) ? segmentValue(segments[name]) : MISSING)
  for (const { names, table } of cuts) {
    const entry = table.get(names.map((name) => coded(given(name))).join())
    if (entry !== undefined) return entry
  }
  return undefined
}

// --- signatures -----------------------------------------------------------------------------------------------

const keyId = (hash) => hash.digest('hex').slice(0, 16)

function parseKey(content) {
  const text = content.trim()
  if (!text.startsWith('-----BEGIN ')) {
    const secret = Buffer.from(text, 'utf8')
    check(secret.length >= 32, 'a secret shorter than 32 bytes')
    const digest = (message) => createHmac('sha256', secret).update(message, 'utf8')
    const fits = (message, value) => value.length === 32 && timingSafeEqual(digest(message).digest(), value)
    return { algorithm: 'hmac-sha256', id: keyId(digest('streamcal key id')), fits }
  }
  const key = createPublicKey(text)
  check(key.asymmetricKeyType === 'ed25519', 'a key of another kind than Ed25519')
  const raw = Buffer.from(key.export({ format: 'jwk' }).x, 'base64url')
  const fits = (message, value) => verifyEd25519(null, Buffer.from(message, 'utf8'), key, value)
  return { algorithm: 'ed25519', id: keyId(createHash('sha256').update('streamcal key id').update(raw)), fits }
}

// A check for compile(), from the contents of key files: public keys (PEM) or secrets.
export function verifier(contents) {
  const keys = contents.map(parseKey)
  return (signature, message) => {
    check(signature !== undefined, 'not signed')
    const key = keys.find(({ algorithm, id }) => algorithm === signature.algorithm && id === signature.key_id)
    check(key !== undefined, `signed by key ${signature.key_id}, which is not accepted`)
    check(key.fits(message, Buffer.from(signature.value, 'hex')), 'the signature does not fit')
  }
}

function splitSignature(document, text) {
  const { signature, ...rest } = document
  if (signature === undefined) return [rest, text]
  check(isObject(signature) && Object.keys(signature).join() === 'algorithm,key_id,value', 'not a signature')
  check(/^[a-z0-9-]+$/.test(signature.algorithm), 'not an algorithm')
  check(/^[0-9a-f]{16}$/.test(signature.key_id) && /^([0-9a-f]{2})+$/.test(signature.value), 'not a signature')
  // Canonical: the member stands before `version`, and none of its values needs escapes.
  return [rest, text.replace(`"signature":${JSON.stringify(signature)},`, '')]
}

// --- document -------------------------------------------------------------------------------------------------

function read(text, { accepts, key }) {
  let whole
  try {
    whole = JSON.parse(text)
  } catch (cause) {
    throw new MapError('not JSON', { cause })
  }
  check(isObject(whole), 'not a map document')
  const [document, unsigned] = splitSignature(whole, text)
  check(document.schema_version === SCHEMA_VERSION, `schema version ${document.schema_version}`)
  check(Object.keys(document).sort().join() === FIELDS.join(), 'fields are missing or unknown')
  check(typeof document.model === 'string' && document.model !== '', 'no model')
  check(isCount(document.version) && document.version > 0, 'no version')
  check(isObject(document.parameters) && isObject(document.segments), 'no parameters or segments')
  // The bytes on the topic are canonical, so without the member they are what was hashed.
  const hashed = unsigned.replace(`"hash":"${document.hash}",`, '')
  const digest = createHash('sha256').update(hashed, 'utf8').digest('hex')
  check(document.hash === `sha256:${digest}`, 'the hash does not fit the content')
  if (accepts !== undefined) accepts(whole.signature, `${key ?? document.model}\n${unsigned}`)
  return document
}

export function compile(text, { accepts, key } = {}) {
  const document = read(text, { accepts, key })
  check(Object.hasOwn(FAMILIES, document.family), `unknown family ${document.family}`)
  const family = FAMILIES[document.family](document.parameters)
  const cuts = segmentCuts(document.segments)
  return {
    model: document.model,
    version: document.version,
    family: document.family,
    apply(score, segments) {
      const served = family(clip(score))
      if (cuts.length === 0) return served
      const entry = find(cuts, segments ?? {})
      return entry === undefined ? served : sigmoid(logit(served) * entry.slope + entry.offset)
    },
  }
}

// Several classes, each against the rest: `classes` are names, `scores` their raw scores, and `maps` has compile()d maps
// by class (those of the models `<model>/<class>`). What is served sums to 1.
export function serveClasses(classes, scores, maps, segments) {
  const raw = normalised(scores)
  return normalised(classes.map((name, i) => (maps.has(name) ? maps.get(name).apply(raw[i], segments) : raw[i])))
}

function normalised(scores) {
  const total = scores.reduce((sum, score) => sum + score)
  if (!(total > 0)) throw new RangeError('the scores are 0 for every class')
  return scores.map((score) => score / total)
}
