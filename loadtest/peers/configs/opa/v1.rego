# The document of this package is the AdmissionReview that answers the input.
package v1

apiVersion := "admission.k8s.io/v1"

kind := "AdmissionReview"

response := {"uid": input.request.uid, "allowed": true} if {
	count(deny) == 0
} else := {
	"uid": input.request.uid,
	"allowed": false,
	"status": {"code": 403, "message": concat("; ", deny)},
}

deny contains "label app is required" if {
	not input.request.object.metadata.labels.app
}
