package worker

import (
	"cmp"
	"container/list"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"

	pb "admission-gateway.io/worker/internal/workerpb"
)

const (
	// maxParametersID is the highest id of parameters of a stream.
	maxParametersID = 256
	// maxParametersBytes is the limit of the JSON of one value.
	maxParametersBytes = 64 * 1024
	// maxPrepared is how many prepared values of a policy are kept: those that were used last.
	maxPrepared = 1024
	// maxPreparedBytes is the limit of their JSON together: the prepared values take several times as much, and a
	// namespace can change its own.
	maxPreparedBytes = 4 * 1024 * 1024
)

// WithParameters declares that the policy takes parameters: schema is their JSON Schema, and prepare makes
// [Review.Parameters] from their JSON, an object, once for each value. A webhook without parameters means {}. An error
// fails the calls with that value.
func WithParameters(schema string, prepare func(parameters json.RawMessage) (any, error)) PolicyOption {
	return func(registered *policy) { registered.schema, registered.prepare = schema, prepare }
}

// WithPrepared sets what [Review.Parameters] returns.
func WithPrepared(parameters any) ReviewOption {
	return func(review *Review) { review.parameters = parameters }
}

// Parameters returns the parameters of the webhook as the policy has prepared them; nil if it takes none. Calls share
// them: they must not be changed.
func (r *Review) Parameters() any { return r.parameters }

// checkParameters returns the mistake in the registration of parameters, if any.
func (p *policy) checkParameters() error {
	switch {
	case p.prepare == nil && p.schema == "":
		return nil
	case p.prepare == nil:
		return fmt.Errorf("policy %q has parameters, but no function that prepares them", p.name)
	case !json.Valid([]byte(p.schema)):
		return fmt.Errorf("the JSON Schema of the parameters of policy %q is not JSON", p.name)
	}
	return nil
}

// prepared has the parameters of a policy by their JSON.
type prepared struct {
	mu     sync.Mutex
	values map[string]*list.Element
	recent list.List
	// bytes is the length of the JSON of all.
	bytes int
}

// preparedValue is prepared at most once.
type preparedValue struct {
	json  string
	once  sync.Once
	value any
	// reason is why no call can be evaluated with the value; empty if calls can.
	reason string
	// failure is what the log says of a preparation that failed, by the first call with the value.
	failure string
	logged  atomic.Bool
}

// find returns the value for this JSON, which may not be prepared yet.
func (p *prepared) find(json []byte) *preparedValue {
	p.mu.Lock()
	defer p.mu.Unlock()
	if found, ok := p.values[string(json)]; ok {
		p.recent.MoveToFront(found)
		return found.Value.(*preparedValue)
	}
	if p.values == nil {
		p.values = make(map[string]*list.Element)
	}
	made := &preparedValue{json: string(json)}
	p.values[made.json] = p.recent.PushFront(made)
	p.bytes += len(made.json)
	for p.recent.Len() > maxPrepared || p.bytes > maxPreparedBytes {
		oldest := p.recent.Remove(p.recent.Back()).(*preparedValue)
		delete(p.values, oldest.json)
		p.bytes -= len(oldest.json)
	}
	return made
}

// takeParameters gives the review its prepared parameters, and returns why that is not possible, if it is not.
func (p *policy) takeParameters(review *Review) string {
	if p.prepare == nil && len(review.parametersJSON) == 0 {
		return ""
	}
	found := p.preparedFor(review.parametersJSON)
	if found.failure != "" && found.logged.CompareAndSwap(false, true) {
		p.logFailure(review, found.failure, nil)
	}
	review.parameters = found.value
	return found.reason
}

// checkValue returns why no call can be evaluated with these parameters; empty if calls can.
func (p *policy) checkValue(text []byte) string {
	switch {
	case len(text) > maxParametersBytes:
		return tooManyParameters(len(text)).err.Message
	case p.prepare == nil && len(text) == 0:
		return ""
	}
	return p.preparedFor(text).reason
}

// preparedFor returns the value for this JSON, prepared.
func (p *policy) preparedFor(text []byte) *preparedValue {
	found := p.prepared.find(text)
	found.once.Do(func() {
		found.reason = exited.err.Message // unless it returns
		p.prepareValue(found)
	})
	return found
}

func (p *policy) prepareValue(made *preparedValue) {
	if p.prepare == nil {
		made.reason = fmt.Sprintf(`policy "%s" takes no parameters`, p.name)
		return
	}
	text := []byte(cmp.Or(made.json, "{}"))
	if _, err := parseObject("parameters", text, nil); err != nil {
		made.reason = err.Error()
		return
	}
	refuse := func(kind, problem string) {
		made.failure = kind + ": " + problem
		made.reason = fmt.Sprintf(`the parameters of policy "%s" cannot be used: %s`, p.name, problem)
	}
	defer func() {
		if problem := recover(); problem != nil {
			refuse("panic", fmt.Sprint(problem))
		}
	}()
	value, err := p.prepare(text)
	if err != nil {
		refuse(fmt.Sprintf("%T", err), err.Error())
		return
	}
	made.value, made.reason = value, ""
}

// withParameters returns the outcome of a call with parameters.
func (o outcome) withParameters() outcome {
	switch {
	case o.response == nil:
		return o
	case o == allowed:
		return allowedWithParameters
	}
	// Every response other than that of allowed was made for its call.
	o.response.ParametersApplied = true
	return o
}

// allowedWithParameters is allowed for a call with parameters.
var allowedWithParameters = outcome{response: &pb.ReviewResponse{Allowed: true, ParametersApplied: true}}

// takeParameters stores the parameters of a batch, and returns what is wrong with them; requires the mutex.
func (s *stream) takeParameters(batch *pb.ReviewBatch) string {
	for _, sent := range batch.Parameters {
		switch {
		case sent.Id == 0 || sent.Id > maxParametersID:
			return fmt.Sprintf("parameters have the id %d, expected 1 to %d", sent.Id, maxParametersID)
		case len(sent.Json) > maxParametersBytes:
			return fmt.Sprintf("parameters have %d bytes, expected at most %d", len(sent.Json), maxParametersBytes)
		}
		if s.parameters == nil {
			s.parameters = make(map[uint32]*kept)
		}
		s.parameterBytes += len(sent.Json) - len(s.parameters[sent.Id].text())
		s.parameters[sent.Id] = &kept{json: sent.Json, bytes: len(sent.Json)}
	}
	s.limits.parameters.set(s.parameterPart, s.parameterBytes)
	return ""
}

// hasParameters reports whether the stream has had parameters with the id; requires the mutex.
func (s *stream) hasParameters(id uint32) bool {
	_, ok := s.parameters[id]
	return ok
}

// tooManyParameters returns the outcome of a Review whose parameters are too long.
func tooManyParameters(bytes int) outcome {
	text := fmt.Sprintf("the parameters have %d bytes, expected at most %d", bytes, maxParametersBytes)
	return errorOutcome(codes.InvalidArgument, text)
}
